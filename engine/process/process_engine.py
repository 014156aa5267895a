"""The engine that runs in a process of its own: the callers' side."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.config import EngineConfig, ModelInfo
from engine.engine import EngineStatus
from engine.errors import RequestError
from engine.front_desk import FrontDesk
from engine.process.kept_requests import KeptRequest
from engine.process.messages import encode_request
from engine.process.supervisor import Supervisor
from engine.request import GenerationRequest
from engine.stats import EngineStats
from engine.stream import OutputStream

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel


class ProcessEngine:
    """Implements Engine. Admission answers in the caller's thread; a process does the rest.

    When the process ends or hangs, another takes its place. Requests whose readers had no text yet
    are run again there by themselves; those in the middle of an answer end with an error.

    Args:
        load: brings the model into memory, in the process; a function of a module, since it is
            found there by its name.
    """

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[EngineConfig, Callable[[str], None]], LoadedModel],
    ) -> None:
        clock = time.monotonic  # the processes share it
        self._desk = FrontDesk(config, abort=self.abort, clock=clock)
        self._supervisor = Supervisor(config, load, self._desk, clock)

    @property
    def pid(self) -> int | None:
        """Of the process that runs the engine now."""
        return self._supervisor.pid

    def start(self) -> None:
        """Begin loading and return at once."""
        self._supervisor.start()
        atexit.register(self.stop)  # a program that forgets to stop it does not wait for it

    def status(self) -> EngineStatus:
        return self._desk.status

    def model_info(self) -> ModelInfo:
        """Raises EngineNotReadyError before the first load, EngineDeadError after the end."""
        return self._desk.model_info()

    def submit(self, request: GenerationRequest) -> OutputStream:
        """Check and queue a request; see Engine for what it raises."""
        admitted, stream = self._desk.open(request)
        try:
            message = encode_request(admitted)
        except RequestError:
            self._desk.withdraw(request.request_id)
            raise
        kept = KeptRequest(request.request_id, message, admitted.deadline_s)
        self._supervisor.submit(kept)
        return stream

    def abort(self, request_id: str) -> None:
        """End a request within one step. Unknown or ended ids are ignored."""
        self._supervisor.abort(request_id)

    def forget(self, conversations: Sequence[str]) -> None:
        """End these conversations' requests, and remove what only they have left behind."""
        self._supervisor.forget(conversations)

    def stats(self) -> EngineStats | None:
        """The newest reading; None before the model is loaded."""
        return self._desk.stats()

    def stop(self) -> None:
        """End every request with ABORT and the process, within five seconds."""
        atexit.unregister(self.stop)
        self._supervisor.stop()
