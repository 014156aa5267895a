"""The engine that runs in a thread of this process: the callers' side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from engine.config import EngineConfig, ModelInfo
from engine.engine import EngineState, EngineStatus
from engine.engine_loop import Abort, EngineLoop, Submit
from engine.errors import EngineDeadError, EngineNotReadyError
from engine.request import GenerationRequest, RequestProgress, RequestStatus
from engine.serving import Serving, make_serving
from engine.stats import EngineStats
from engine.stream import OutputStream

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel


class InProcessEngine:
    """Implements Engine. Admission answers in the caller's thread, the rest is posted to the loop.

    Args:
        load: brings the model into memory; called in the engine's thread, with a function that
            takes a sentence on what is being done.
    """

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[EngineConfig, Callable[[str], None]], LoadedModel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        def load_serving(report: Callable[[str], None]) -> Serving:
            return make_serving(config, load(config, report), clock)

        self._clock = clock
        self._loop = EngineLoop(load_serving, clock)
        self._thread = threading.Thread(target=self._loop.run, name="hearth-engine", daemon=True)

    def start(self) -> None:
        """Begin loading and return at once."""
        self._thread.start()

    def status(self) -> EngineStatus:
        return self._loop.status

    def model_info(self) -> ModelInfo:
        """Raises EngineNotReadyError while loading, EngineDeadError after a failure or stop."""
        return self._serving().info

    def submit(self, request: GenerationRequest) -> OutputStream:
        """Check and queue a request; see Engine for what it raises."""
        admission = self._serving().admission
        admitted = admission.admit(request, self._clock())
        num_prompt_tokens = admitted.num_prompt_tokens
        stream = OutputStream(
            request.request_id,
            abort=self.abort,
            read_progress=partial(self._progress, request.request_id, num_prompt_tokens),
        )
        if not self._loop.post(Submit(admitted, stream)):
            admission.ended(request.request_id)
            raise EngineDeadError(self._loop.status.message)
        return stream

    def abort(self, request_id: str) -> None:
        """End a request within one step. Unknown or ended ids are ignored."""
        self._loop.post(Abort(request_id))

    def stats(self) -> EngineStats | None:
        """The newest reading; None before the model is loaded."""
        return self._loop.stats

    def stop(self) -> None:
        """End every request with ABORT, stop the thread, return when it has ended."""
        self._loop.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def _serving(self) -> Serving:
        state, message = self._loop.status
        if state in {EngineState.FAILED, EngineState.STOPPED}:
            raise EngineDeadError(message)
        if state is EngineState.LOADING or self._loop.serving is None:
            raise EngineNotReadyError("The model is still loading: try again shortly.")
        return self._loop.serving

    def _progress(self, request_id: str, num_prompt_tokens: int) -> RequestProgress:
        unknown = RequestProgress(RequestStatus.WAITING, None, 0, num_prompt_tokens)
        return self._loop.progress.get(request_id, unknown)
