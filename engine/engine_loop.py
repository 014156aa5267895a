"""The engine thread's side: load the model, step the core, tell an outlet what came of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from engine.errors import DeviceLostError, HearthError
from engine.loop_news import LoopNews, Outlet, Reading
from engine.request import FinishReason, Request, RequestOutput
from engine.serving import Serving

logger = logging.getLogger(__name__)

_PUBLISH_INTERVAL_S = 0.1
_DISK_WAIT_S = 0.01  # how late a new request may be noticed while the others wait for the disk
_IDLE_WAIT_S = 1.0  # how old a reading may get while there is nothing to do
_LOAD_FAILED = "The model could not be loaded because of an internal error; the log says more."
_NOT_STARTED = "This request could not be started because of an internal error."
_DIED = "The engine stopped because of an internal error"
_LOST = "The engine stopped because the device it computes on has failed"


class Submit(NamedTuple):
    request: Request


class Abort(NamedTuple):
    request_id: str


class Forget(NamedTuple):
    """See Engine.forget."""

    conversations: tuple[str, ...]


class _LoadingStoppedError(HearthError):
    """`stop` was called while the model was loading."""


class EngineLoop:
    """Only `run` touches the core and the outlet; it belongs to one thread.

    Other threads use `post` and `stop`.
    """

    def __init__(
        self,
        load: Callable[[Callable[[str], None]], Serving],
        outlet: Outlet,
        clock: Callable[[], float],
    ) -> None:
        self._load = load
        self._outlet = outlet
        self._clock = clock
        self._commands: SimpleQueue[Submit | Abort | Forget] = SimpleQueue()
        self._wake = threading.Event()
        self._is_stopping = False
        self._published_s = float("-inf")

    def post(self, command: Submit | Abort | Forget) -> None:
        """Hand a command to the loop."""
        self._commands.put(command)
        # An abort never wakes the loop: what could be aborted keeps it awake. So posting one takes
        # no lock, and may be done while garbage is collected, at any point of a thread's work.
        if not isinstance(command, Abort):
            self._wake.set()

    def stop(self) -> None:
        """Make `run` return soon."""
        self._is_stopping = True
        self._wake.set()

    def run(self) -> None:
        """Load, then serve until stopped."""
        try:
            serving = self._load(self._report)
        except _LoadingStoppedError:
            self._outlet.stopped()
        except HearthError as error:
            self._outlet.load_failed(str(error))
        except Exception:
            logger.exception("Loading the model failed")
            self._outlet.load_failed(_LOAD_FAILED)
        else:
            self._serve_until_stopped(serving)

    def _report(self, message: str) -> None:
        if self._is_stopping:
            raise _LoadingStoppedError
        self._outlet.loading(message)

    def _serve_until_stopped(self, serving: Serving) -> None:
        try:
            self._tell(reading=self._read(serving))
            self._outlet.ready(serving.info)
            while not self._is_stopping:
                self._turn(serving)
            self._drain(serving)  # what is to be forgotten must not be kept
            outputs = serving.core.abort_all()
            self._tell(outputs, reading=self._read(serving))
            serving.core.close(keep_warm=True)
        except DeviceLostError:
            logger.exception("The device has failed for good")
            self._outlet.died(_LOST)
        except Exception:
            logger.exception("The engine's loop ended")
            self._outlet.died(_DIED)
        else:
            self._outlet.stopped()
        finally:
            serving.core.close(keep_warm=False)

    def _turn(self, serving: Serving) -> None:
        has_new = self._drain(serving)
        if serving.core.has_work:
            if has_new:
                self._tell(reading=self._read(serving))  # waiting work shows even if the step hangs
            self._step(serving)
            serving.core.wait(_DISK_WAIT_S)
        else:
            self._tell(reading=self._read(serving))
            self._wake.wait(_IDLE_WAIT_S)
            self._wake.clear()

    def _step(self, serving: Serving) -> None:
        outputs = serving.core.step(self._announce)
        is_due = self._clock() - self._published_s >= _PUBLISH_INTERVAL_S
        if is_due or any(output.finish_reason for output in outputs):
            self._tell(outputs, reading=self._read(serving))
        else:
            self._tell(outputs)

    def _announce(self, started: Sequence[Request]) -> None:
        self._tell(started=tuple(request.request_id for request in started))

    def _drain(self, serving: Serving) -> bool:
        """Carry out what was posted; True if a request came."""
        has_new = False
        outputs: list[RequestOutput | None] = []
        while (command := self._next_command()) is not None:
            if isinstance(command, Submit):
                has_new = True
                outputs.append(self._add(serving, command.request))
            elif isinstance(command, Forget):
                outputs += serving.core.forget(command.conversations)
            else:
                outputs.append(serving.core.abort(command.request_id))
        self._tell([output for output in outputs if output is not None])
        return has_new

    def _add(self, serving: Serving, request: Request) -> RequestOutput | None:
        """None, or the end of a request that cannot be begun."""
        try:
            serving.core.add(request)
        except Exception:
            logger.exception("Request %s could not be started", request.request_id)
            return RequestOutput(
                request_id=request.request_id,
                finish_reason=FinishReason.ERROR,
                error=_NOT_STARTED,
                num_accepted_tokens=0,
            )
        return None

    def _read(self, serving: Serving) -> Reading | None:
        self._published_s = self._clock()
        try:
            return Reading(serving.core.stats(), serving.core.progress())
        except Exception:
            logger.exception("The engine's figures could not be read")
            return None

    def _tell(
        self,
        outputs: list[RequestOutput] | None = None,
        started: tuple[str, ...] = (),
        reading: Reading | None = None,
    ) -> None:
        if outputs or started or reading is not None:
            self._outlet.news(LoopNews(self._clock(), tuple(outputs or ()), started, reading))

    def _next_command(self) -> Submit | Abort | Forget | None:
        try:
            return self._commands.get_nowait()
        except Empty:
            return None
