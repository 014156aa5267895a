"""The HTTP server: uvicorn with a start that says how it goes and an end that is quick."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from engine import ConfigError, Engine, EngineState
from ui.server_config import ServerConfig

_POLL_S = 0.1
_GRACE_S = 2
_BACKLOG = 1024
_MAX_FRAME_BYTES = 64 * 1024  # of what a page may send over its event connection


def open_socket(config: ServerConfig) -> socket.socket:
    """Listen before anything slow is started.

    Raises:
        ConfigError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(_address_message(config, error)) from None


def _address_message(config: ServerConfig, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {config.port} of {config.host} is taken: stop what uses it, or choose another "
            "with --port."
        )
    if error.errno == errno.EACCES:
        return f"Port {config.port} may not be used by this account: choose one above 1023."
    return f"Cannot listen on {config.host} port {config.port}: {error.strerror or error}."


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


class WebServer(uvicorn.Server):
    """Serves while the engine loads, and ends when the first load fails.

    A later failure leaves the page up, which says what happened.

    `say` gets one line for each thing worth telling.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        engine: Engine,
        say: Callable[[str], None],
    ) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
            ws_max_size=_MAX_FRAME_BYTES,
            ws_per_message_deflate=False,  # small frames: it costs more time than it saves bytes
        )
        super().__init__(config)
        self._engine = engine
        self._say = say
        self._address = ""
        self._watch: asyncio.Task[None] | None = None
        self.load_failure: str | None = None

    def serve_on(self, listener: socket.socket) -> str | None:
        """Serve until a signal or a failed load; the failure's sentence, or None."""
        self._address = address_of(listener)
        self.run(sockets=[listener])
        return self.load_failure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._say(f"Hearth is at {self._address}")
        self._watch = asyncio.create_task(self._watch_engine())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._say("Stopping.")
        if self._watch is not None:
            self._watch.cancel()
        # First, so that engine and monitor end their streams: uvicorn waits for open connections.
        await self.lifespan.shutdown()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that was obeyed is not raised again: the exit code is 0."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def _watch_engine(self) -> None:
        """Say what becomes of the engine, until it is over."""
        said, was_ready = "", False
        while (status := self._engine.status()).state is not EngineState.STOPPED:
            has_failed = status.state is EngineState.FAILED
            if has_failed and not was_ready:
                self.load_failure = status.message
                self.should_exit = True
                return
            if status.message and status.message != said:
                said = status.message
                self._say(said)
            if has_failed:
                return
            was_ready = was_ready or status.state is EngineState.READY
            await asyncio.sleep(_POLL_S)
