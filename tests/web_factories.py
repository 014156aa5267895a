"""The web application around engines that a test controls, over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import httpx
import openai
import uvicorn
from starlette.types import ASGIApp

from engine.batch import ScheduledBatch
from engine.chat import ChatService
from engine.config import EngineConfig
from engine.engine import EngineState
from engine.in_process import InProcessEngine
from tests.engine_factories import wait_until
from tests.factories import make_model_info
from tests.fake_runner import ByteTokenizer, FakeRunner
from ui.api.v1 import create_v1_app
from ui.server_config import ServerConfig

HI = [{"role": "user", "content": "hello"}]


def make_chat_engine(
    tokenizer_path: Path, runner: FakeRunner | None = None, **config: Any
) -> InProcessEngine:
    """An engine on a FakeRunner, for prompts of a real tokenizer; not started yet."""
    info = make_model_info(
        tokenizer_path=str(tokenizer_path),
        block_size=8,
        num_blocks=2048,
        max_model_len=1024,
        vocab_size=1000,
    )
    loaded = SimpleNamespace(runner=runner or FakeRunner(8), info=info, tokenizer=ByteTokenizer())
    return InProcessEngine(EngineConfig(**config), lambda config, report: loaded)


@contextlib.contextmanager
def chat_engine(
    tokenizer_path: Path, runner: FakeRunner | None = None, **config: Any
) -> Iterator[InProcessEngine]:
    """The same, running."""
    engine = make_chat_engine(tokenizer_path, runner, **config)
    engine.start()
    wait_until(lambda: engine.status().state is EngineState.READY)
    try:
        yield engine
    finally:
        engine.stop()


@contextlib.contextmanager
def served(app: ASGIApp, lifespan: Literal["on", "off"] = "off") -> Iterator[str]:
    """Serve an application from a thread; gives its address. Gradio's events need its lifespan."""
    server = uvicorn.Server(
        uvicorn.Config(
            app, port=0, log_level="critical", lifespan=lifespan, timeout_graceful_shutdown=1
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


class Bench:
    """An engine, its runner and a client of it."""

    def __init__(self, engine: InProcessEngine, runner: FakeRunner, url: str) -> None:
        self.engine = engine
        self.runner = runner
        self.http = httpx.Client(base_url=url, timeout=20, trust_env=False)
        self.openai = openai.OpenAI(base_url=url, api_key="k", max_retries=0)

    def post(self, **body: Any) -> httpx.Response:
        return self.http.post("/chat/completions", json={"messages": HI, **body})

    def stream(self, **body: Any) -> contextlib.AbstractContextManager[httpx.Response]:
        body = {"messages": HI, "stream": True, **body}
        return self.http.stream("POST", "/chat/completions", json=body)

    def ask_and_leave(self, when: Callable[[], bool], **body: Any) -> None:
        """Send a request and close the connection, unread, when the condition has come true."""
        connection = http.client.HTTPConnection(self.http.base_url.netloc.decode())
        headers = {"Content-Type": "application/json"}
        text = json.dumps({"messages": HI, **body})
        connection.request("POST", "/chat/completions", text, headers)
        wait_until(when)
        connection.close()

    def close(self) -> None:
        self.http.close()
        self.openai.close()

    def wait_until_idle(self) -> None:
        wait_until(lambda: self.num_live() == 0)

    def num_live(self) -> int:
        stats = self.engine.stats()
        assert stats is not None
        return stats.num_running + stats.num_waiting


@contextlib.contextmanager
def bench(tokenizer_path: Path, runner: FakeRunner | None = None, **config: Any) -> Iterator[Bench]:
    runner = runner or FakeRunner(8)
    with chat_engine(tokenizer_path, runner, **config) as engine:
        settings = ServerConfig(keep_alive_interval_s=0.05)
        app = create_v1_app(engine=engine, chat=ChatService(engine), config=settings)
        with served(app) as url:
            client = Bench(engine, runner, url)
            try:
                yield client
            finally:
                client.close()


class SlowRunner(FakeRunner):
    """Takes a moment for each step, or waits before it until it may go on."""

    def __init__(self, step_s: float = 0.0) -> None:
        super().__init__(8)
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fault = self._wait
        self.num_begun = 0  # steps, the one that waits included
        self._step_s = step_s

    def _wait(self, batch: ScheduledBatch) -> None:
        self.num_begun += 1
        time.sleep(self._step_s)
        self.may_go_on.wait(10)


def events(response: httpx.Response) -> list[str]:
    return [line for line in response.iter_lines() if line]


def data(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
