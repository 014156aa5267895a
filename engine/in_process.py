"""The engine that runs in a thread of this process, for tests and for programs without a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.config import EngineConfig, ModelInfo
from engine.engine import EngineState, EngineStatus
from engine.engine_loop import Abort, EngineLoop, Forget, Submit
from engine.front_desk import FrontDesk
from engine.loop_news import LoopNews
from engine.request import FinishReason, GenerationRequest
from engine.serving import Serving, make_serving
from engine.stats import EngineStats
from engine.stream import OutputStream

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel

_STOPPED = EngineStatus(EngineState.STOPPED, "The engine has been stopped.")


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
        self._serving: Serving | None = None

        def load_serving(report: Callable[[str], None]) -> Serving:
            serving = self._serving = make_serving(config, load(config, report), clock)
            return serving

        self._desk = FrontDesk(config, abort=self.abort, clock=clock)
        self._loop = EngineLoop(load_serving, _DeskOutlet(self._desk), clock)
        self._thread = threading.Thread(target=self._loop.run, name="hearth-engine", daemon=True)

    def start(self) -> None:
        """Begin loading and return at once."""
        self._thread.start()

    def status(self) -> EngineStatus:
        return self._desk.status

    def model_info(self) -> ModelInfo:
        """Raises EngineNotReadyError while loading, EngineDeadError after a failure or stop."""
        return self._desk.model_info()

    def submit(self, request: GenerationRequest) -> OutputStream:
        """Check and queue a request; see Engine for what it raises."""
        opened = self._desk.open(request)
        self._loop.post(Submit(opened.request))
        return opened.stream

    def abort(self, request_id: str) -> None:
        """End a request within one step. Unknown or ended ids are ignored."""
        self._loop.post(Abort(request_id))

    def forget(self, conversations: Sequence[str]) -> None:
        """End these conversations' requests, and remove what only they have left behind."""
        self._loop.post(Forget(tuple(conversations)))

    def stats(self) -> EngineStats | None:
        """The newest reading; None before the model is loaded."""
        return self._desk.stats()

    def stop(self) -> None:
        """End every request with ABORT, stop the thread, return when it has ended."""
        self._loop.stop()
        if self._thread.ident is not None:
            self._thread.join()


class _DeskOutlet:
    """Carries the loop's news to the front desk; implements Outlet."""

    def __init__(self, desk: FrontDesk) -> None:
        self._desk = desk

    def loading(self, message: str) -> None:
        self._desk.status = EngineStatus(EngineState.LOADING, message)

    def ready(self, info: ModelInfo) -> None:
        self._desk.ready(info, EngineStatus(EngineState.READY, "The model is ready."))

    def news(self, news: LoopNews) -> None:
        self._desk.deliver(news)

    def load_failed(self, message: str) -> None:
        self._desk.close(EngineStatus(EngineState.FAILED, message), FinishReason.ERROR)

    def died(self, what: str) -> None:
        message = f"{what}. Please restart Hearth."
        self._desk.close(EngineStatus(EngineState.STOPPED, message), FinishReason.ERROR)

    def stopped(self) -> None:
        self._desk.close(_STOPPED, FinishReason.ABORT)
