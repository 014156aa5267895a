"""The engine thread's side: load the model, step the core, deliver outputs, publish readings."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from engine.engine import EngineState, EngineStatus
from engine.errors import HearthError
from engine.request import FinishReason, Request, RequestOutput, RequestProgress
from engine.serving import Serving
from engine.stats import EngineStats
from engine.stream import OutputStream

logger = logging.getLogger(__name__)

_PUBLISH_INTERVAL_S = 0.1
_IDLE_WAIT_S = 1.0  # how old a reading may get while there is nothing to do
_LOAD_FAILED = "The model could not be loaded because of an internal error; the log says more."
_NOT_STARTED = "This request could not be started because of an internal error."
_DIED = "The engine stopped because of an internal error. Please restart Hearth."
_STOPPED = "The engine has been stopped."


class Submit(NamedTuple):
    request: Request
    stream: OutputStream


class Abort(NamedTuple):
    request_id: str


class _LoadingStoppedError(HearthError):
    """`stop` was called while the model was loading."""


class EngineLoop:
    """Only `run` touches the core and the streams; it belongs to one thread.

    Other threads use `post` and `stop`, and read what is published by one assignment: `status`,
    `serving`, `stats` and `progress`.
    """

    def __init__(
        self, load: Callable[[Callable[[str], None]], Serving], clock: Callable[[], float]
    ) -> None:
        self.status = EngineStatus(EngineState.LOADING, "The model is about to be loaded.")
        self.serving: Serving | None = None
        self.stats: EngineStats | None = None
        self.progress: dict[str, RequestProgress] = {}
        self._load = load
        self._clock = clock
        self._commands: SimpleQueue[Submit | Abort] = SimpleQueue()
        self._posting = threading.Lock()  # held to post, and to stop taking posts
        self._wake = threading.Event()
        self._is_stopping = False
        self._streams: dict[str, weakref.ref[OutputStream]] = {}
        self._published_s = float("-inf")

    def post(self, command: Submit | Abort) -> bool:
        """Hand a command to the loop; False when nobody will take it."""
        with self._posting:
            if self.status.state is not EngineState.READY:
                return False
            self._commands.put(command)
        self._wake.set()
        return True

    def stop(self) -> None:
        """Make `run` return soon."""
        self._is_stopping = True
        self._wake.set()

    def run(self) -> None:
        """Load, then serve until stopped. Whatever happens, every reader gets an end."""
        try:
            serving = self._load(self._report)
        except _LoadingStoppedError:
            self.status = EngineStatus(EngineState.STOPPED, _STOPPED)
        except HearthError as error:
            self.status = EngineStatus(EngineState.FAILED, str(error))
        except Exception:
            logger.exception("Loading the model failed")
            self.status = EngineStatus(EngineState.FAILED, _LOAD_FAILED)
        else:
            self._serve_until_stopped(serving)

    def _report(self, message: str) -> None:
        if self._is_stopping:
            raise _LoadingStoppedError(_STOPPED)
        self.status = EngineStatus(EngineState.LOADING, message)

    def _serve_until_stopped(self, serving: Serving) -> None:
        self.serving = serving
        self._publish(serving)
        self.status = EngineStatus(EngineState.READY, "The model is ready.")
        try:
            while not self._is_stopping:
                self._turn(serving)
            self._deliver(serving, serving.core.abort_all())
            self._publish(serving)
        except Exception:
            logger.exception("The engine's loop ended")
            self._close(_DIED, FinishReason.ERROR)
        else:
            self._close(_STOPPED, FinishReason.ABORT)

    def _turn(self, serving: Serving) -> None:
        has_new = self._drain(serving)
        if serving.core.has_work:
            if has_new:
                self._publish(serving)  # waiting work shows even if the step hangs
            outputs = serving.core.step()
            for request in serving.core.started:
                serving.admission.started(request.request_id, self._clock())
            is_due = self._clock() - self._published_s >= _PUBLISH_INTERVAL_S
            if is_due or any(output.finish_reason for output in outputs):
                self._publish(serving)
            self._deliver(serving, outputs)
        else:
            self._publish(serving)
            self._wake.wait(_IDLE_WAIT_S)
            self._wake.clear()

    def _drain(self, serving: Serving) -> bool:
        """Carry out what was posted; True if a request came."""
        has_new = False
        while (command := self._next_command()) is not None:
            if isinstance(command, Submit):
                has_new = True
                self._add(serving, command)
            else:
                output = serving.core.abort(command.request_id)
                self._deliver(serving, [output] if output else [])
        return has_new

    def _add(self, serving: Serving, command: Submit) -> None:
        request_id = command.request.request_id
        # A stream that nobody holds any more aborts its request. SimpleQueue.put may be called
        # while garbage is collected, at any point of this thread's or another's work.
        self._streams[request_id] = weakref.ref(
            command.stream, lambda _: self._commands.put(Abort(request_id))
        )
        try:
            serving.core.add(command.request)
        except Exception:
            logger.exception("Request %s could not be started", request_id)
            self._deliver(serving, [_last_output(request_id, FinishReason.ERROR, _NOT_STARTED)])

    def _deliver(self, serving: Serving, outputs: Iterable[RequestOutput]) -> None:
        for output in outputs:
            stream = self._streams[output.request_id]()
            if output.finish_reason is not None:
                del self._streams[output.request_id]
                serving.admission.ended(output.request_id)
            if stream is not None:
                stream.put(output)

    def _publish(self, serving: Serving) -> None:
        self._published_s = self._clock()
        try:
            self.progress = serving.core.progress()
            self.stats = serving.core.stats(serving.admission.num_refused)
        except Exception:
            logger.exception("The engine's figures could not be read")

    def _close(self, message: str, reason: FinishReason) -> None:
        """Take no more requests, and end all that are still there."""
        with self._posting:
            self.status = EngineStatus(EngineState.STOPPED, message)
        error = message if reason is FinishReason.ERROR else None
        for request_id, reference in self._streams.items():
            stream = reference()
            if stream is not None:
                stream.put(_last_output(request_id, reason, error))
        self._streams.clear()
        while (command := self._next_command()) is not None:
            if isinstance(command, Submit):
                command.stream.put(_last_output(command.request.request_id, reason, error))

    def _next_command(self) -> Submit | Abort | None:
        try:
            return self._commands.get_nowait()
        except Empty:
            return None


def _last_output(request_id: str, reason: FinishReason, error: str | None) -> RequestOutput:
    return RequestOutput(
        request_id=request_id, finish_reason=reason, error=error, num_accepted_tokens=0
    )
