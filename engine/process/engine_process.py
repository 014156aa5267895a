"""One child process that runs an engine, and the pipe to it, seen from the parent."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from engine.config import EngineConfig
from engine.process.messages import Event, make_codec
from engine.process.worker import run_worker

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel

logger = logging.getLogger(__name__)

_END_GRACE_S = 1.0  # between the end of the pipe and that of the process


class EngineProcess:
    """`start`, `receive` and `close` belong to one thread; the rest may be called from any.

    Args:
        number: tells it from the processes before it.
    """

    def __init__(
        self,
        number: int,
        config: EngineConfig,
        load: Callable[[EngineConfig, Callable[[str], None]], LoadedModel],
    ) -> None:
        # A fork would copy locks that other threads hold, and OpenMP's pool without its threads.
        context = multiprocessing.get_context("spawn")
        self.number = number
        self.num_received = 0
        self._connection, self._child_connection = context.Pipe()
        self._process = context.Process(
            target=run_worker,
            args=(self._child_connection, config, load),
            name="hearth-engine",
            daemon=True,
        )
        self._codec = make_codec()
        self._sending = threading.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def start(self) -> None:
        """Raises OSError where the machine has no room for a process."""
        try:
            self._process.start()
        finally:
            self._child_connection.close()  # the child has its own; the pipe ends with that

    def send(self, message: bytes) -> bool:
        """Waits while the pipe is full; False if nobody will read it."""
        with self._sending:
            try:
                self._connection.send_bytes(message)
            except OSError:
                return False
        return True

    def receive(self) -> Event | None:
        """Wait for the next message; None when there will be none."""
        try:
            event = self._codec.event(self._connection.recv_bytes())
        except (EOFError, OSError):
            return None
        except msgspec.DecodeError:
            logger.exception("The engine's process sent what is no message")
            return None
        self.num_received += 1
        return event

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        if self._process.pid is not None:
            self._process.kill()

    def close(self) -> int | None:
        """After the last message: see to its end, and give its exit code; below 0 a signal's."""
        if self._process.pid is not None:
            self._process.join(_END_GRACE_S)
            self._process.kill()
            self._process.join()
        with self._sending:  # a write that waits has failed by now
            self._connection.close()
        return self._process.exitcode
