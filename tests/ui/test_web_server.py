"""What the server does while its engine loads, restarts and fails."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

import httpx
from fastapi import FastAPI

from engine import EngineState
from tests.engine_factories import wait_until
from tests.fakes import IdleEngine
from ui.server_config import ServerConfig
from ui.web_server import WebServer, open_socket


class Running(NamedTuple):
    server: WebServer
    thread: threading.Thread
    said: list[str]
    url: str


@contextlib.contextmanager
def running(engine: IdleEngine) -> Iterator[Running]:
    app, said = FastAPI(), list[str]()
    with open_socket(ServerConfig(port=0)) as listener:
        server = WebServer(app, engine=engine, say=said.append)
        thread = threading.Thread(target=server.serve_on, args=(listener,))
        thread.start()
        wait_until(lambda: bool(said))
        try:
            yield Running(server, thread, said, said[0].removeprefix("Hearth is at "))
        finally:
            server.should_exit = True
            thread.join()


def test_a_failed_first_load_ends_it() -> None:
    engine = IdleEngine(EngineState.LOADING)
    with running(engine) as it:
        engine.state = EngineState.FAILED
        it.thread.join(10)
        assert not it.thread.is_alive()
        assert it.server.load_failure == "The model is failed."
        assert it.said[-1] == "Stopping."


def test_a_later_failure_is_told_and_leaves_the_page_up() -> None:
    engine = IdleEngine(EngineState.READY)
    with running(engine) as it:
        for state in (EngineState.RESTARTING, EngineState.READY, EngineState.FAILED):
            wait_until(lambda: len(it.said) > 1)
            engine.state = state
            wait_until(lambda state=state: it.said[-1] == f"The model is {state.value}.")
        assert httpx.get(it.url, trust_env=False).status_code == 404
        assert it.server.load_failure is None
    assert it.said[1:] == [
        "The model is ready.",
        "The model is restarting.",
        "The model is ready.",
        "The model is failed.",
        "Stopping.",
    ]
