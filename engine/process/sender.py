"""Carries commands to the process that serves now. A thread of its own: a pipe may be full."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from engine.process.engine_process import EngineProcess
from engine.process.kept_requests import KeptRequests
from engine.process.messages import (
    AbortRequest,
    ForgetConversations,
    StopServing,
    make_codec,
    readable,
)
from engine.request import FinishReason

_MAX_FORGOTTEN = 256


class _Submitted(NamedTuple):
    request_id: str


class _Aborted(NamedTuple):
    request_id: str


class _Forgotten(NamedTuple):
    conversations: tuple[str, ...]


class _Attached(NamedTuple):
    process: EngineProcess | None


class _StopAsked(NamedTuple):
    pass


class _Closed(NamedTuple):
    pass


class Sender:
    """While no process is attached, requests wait in `kept`; the next process gets them all.

    Args:
        end: ends a request that no process has, by its id.
    """

    def __init__(self, kept: KeptRequests, end: Callable[[str, FinishReason], None]) -> None:
        self._kept = kept
        self._end = end
        self._codec = make_codec()
        self._process: EngineProcess | None = None
        self._forgotten: deque[bytes] = deque(maxlen=_MAX_FORGOTTEN)
        self._tasks: SimpleQueue[
            _Submitted | _Aborted | _Forgotten | _Attached | _StopAsked | _Closed
        ] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hearth-engine-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request_id: str) -> None:
        """A request is in `kept`."""
        self._tasks.put(_Submitted(request_id))

    def abort(self, request_id: str) -> None:
        """Takes no lock: it may be called while garbage is collected."""
        self._tasks.put(_Aborted(request_id))

    def forget(self, conversations: Sequence[str]) -> None:
        """For this process, and for the next ones, should this one not come to it."""
        self._tasks.put(_Forgotten(tuple(conversations)))

    def attach(self, process: EngineProcess | None) -> None:
        """This process serves from now on, or none does."""
        self._tasks.put(_Attached(process))

    def stop_serving(self) -> None:
        self._tasks.put(_StopAsked())

    def close(self) -> None:
        """End the thread; no process may be alive any more."""
        self._tasks.put(_Closed())
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not isinstance(task := self._tasks.get(), _Closed):
            if isinstance(task, _Submitted):
                self._send_unsent([task.request_id])
            elif isinstance(task, _Aborted):
                self._abort(task.request_id)
            elif isinstance(task, _Forgotten):
                self._forget(task.conversations)
            elif isinstance(task, _Attached):
                self._process = task.process
                self._send_forgotten()
                self._send_unsent(None)
            elif self._process is not None:
                self._process.send(self._codec.encode(StopServing()))

    def _send_unsent(self, request_ids: list[str] | None) -> None:
        """What cannot be sent is sent to the next process."""
        process = self._process
        if process is None:
            return
        for request in self._kept.take_unsent(process.number, request_ids):
            if request.is_aborted:
                self._end(request.request_id, FinishReason.ABORT)
            elif not process.send(request.message):
                return

    def _forget(self, conversations: tuple[str, ...]) -> None:
        names = tuple(readable(name) for name in conversations)
        message = self._codec.encode(ForgetConversations(names))
        self._forgotten.append(message)
        if self._process is not None:
            self._process.send(message)

    def _send_forgotten(self) -> None:
        """Before any request: whether the last process came to it before its end is not known."""
        process = self._process
        if process is not None:
            for message in self._forgotten:
                process.send(message)

    def _abort(self, request_id: str) -> None:
        request = self._kept.abort(request_id)
        if request is None:
            return
        process = self._process
        is_sent = process is not None and request.process_number == process.number
        command = self._codec.encode(AbortRequest(request_id))
        if not (is_sent and process is not None and process.send(command)):
            self._end(request_id, FinishReason.ABORT)
