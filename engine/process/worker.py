"""The engine's process: the loop in its main thread, the parent's commands in another.

It ends when the pipe closes, whatever it is doing: it never outlives the parent.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from engine.config import EngineConfig, ModelInfo
from engine.engine_loop import Abort, EngineLoop, Forget, Submit
from engine.loop_news import LoopNews
from engine.process.messages import (
    AbortRequest,
    Died,
    Event,
    ForgetConversations,
    LoadFailed,
    Loading,
    News,
    Ready,
    SubmitRequest,
    make_codec,
    readable,
)
from engine.serving import Serving, make_serving

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel

_TERMINATION_GRACE_S = 6.0  # longer than a stop takes
_PARENT_IS_GONE = 3  # exit codes
_TERMINATED = 4


def run_worker(
    connection: Connection,
    config: EngineConfig,
    load: Callable[[EngineConfig, Callable[[str], None]], LoadedModel],
) -> None:
    """The target of the process; does not return."""
    _take_signals()
    # Locks that libraries make of multiprocessing (tqdm does) then have no name in the system which
    # somebody would have to remove after a process that was killed. Nothing here starts processes.
    multiprocessing.set_start_method("fork", force=True)
    faulthandler.enable()  # a crash in native code leaves its stack in the log

    def load_serving(report: Callable[[str], None]) -> Serving:
        return make_serving(config, load(config, report), time.monotonic)

    loop = EngineLoop(load_serving, PipeOutlet(connection), time.monotonic)
    threading.Thread(target=_obey, args=(connection, loop), name="commands", daemon=True).start()
    loop.run()
    _end(0)


class PipeOutlet:
    """Sends the loop's news through the pipe, one message each; implements Outlet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._codec = make_codec()

    def loading(self, message: str) -> None:
        self._send(Loading(readable(message)))

    def ready(self, info: ModelInfo) -> None:
        self._send(Ready(info))

    def news(self, news: LoopNews) -> None:
        self._send(News(news))

    def load_failed(self, message: str) -> None:
        self._send(LoadFailed(readable(message)))

    def died(self, what: str) -> None:
        self._send(Died(what))

    def stopped(self) -> None:
        """The end of the process says it."""

    def _send(self, event: Event) -> None:
        try:
            self._connection.send_bytes(self._codec.encode(event))
        except OSError:
            _end(_PARENT_IS_GONE)


def _obey(connection: Connection, loop: EngineLoop) -> None:
    codec = make_codec()
    while True:
        try:
            command = codec.command(connection.recv_bytes())
        except (EOFError, OSError):
            _end(_PARENT_IS_GONE)
        if isinstance(command, SubmitRequest):
            loop.post(Submit(command.request()))
        elif isinstance(command, AbortRequest):
            loop.post(Abort(command.request_id))
        elif isinstance(command, ForgetConversations):
            loop.post(Forget(command.conversations))
        else:
            loop.stop()


def _take_signals() -> None:
    """A terminal and a service manager signal every process; the parent says what is to be done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _end_later())


def _end_later() -> None:
    timer = threading.Timer(_TERMINATION_GRACE_S, _end, (_TERMINATED,))
    timer.daemon = True
    timer.start()


def _end(exit_code: int) -> None:
    """At once: no library's clean-up may hold it up."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(exit_code)
