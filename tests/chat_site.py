"""The whole application around an engine that a test controls: persons, their calls, their tabs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from fastapi import FastAPI
from websockets.sync.client import ClientConnection, connect

from engine.engine import EngineState
from engine.in_process import InProcessEngine
from engine.telemetry.monitor import Monitor
from tests.engine_factories import wait_until
from tests.fake_runner import FakeRunner
from tests.web_factories import make_chat_engine, served
from ui.chat.config import ChatConfig
from ui.server_config import ServerConfig
from ui.web import create_web_app


class PersonAtSite:
    """One browser profile: its cookie, its calls and its tabs."""

    def __init__(self, url: str, cookie: str | None = None) -> None:
        """Opens the page for a `cookie`, "name=value", where none is given."""
        self.http = httpx.Client(base_url=url, timeout=20, trust_env=False)
        if cookie is None:
            cookie = self.http.get("/").headers["set-cookie"].partition(";")[0]
            self.http.cookies.clear()
        self.cookie = cookie
        self.http.headers["Cookie"] = cookie
        self._url = url

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; it must be 200."""
        response = self.send(method, path, body)
        assert response.status_code == 200, response.text
        return response.json()

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.http.request(method, f"/api/chat{path}", json=body)

    def ask(self, text: str, conversation_id: str | None = None, **fields: Any) -> dict[str, Any]:
        settings = {"temperature": 0, "max_tokens": 8, **fields.pop("settings", {})}
        body = {
            "conversation_id": conversation_id,
            "question_id": fields.pop("question_id", None) or uuid.uuid4().hex,
            "text": text,
            "settings": settings,
            **fields,
        }
        asked: dict[str, Any] = self.call("POST", "/ask", body)
        return asked

    def wait_for_answer(self, conversation_id: str) -> dict[str, Any]:
        """The last message, once it is no longer being written."""
        seen: dict[str, Any] = {}

        def is_over() -> bool:
            seen.update(self.get(f"/conversations/{conversation_id}")["messages"][-1])
            return seen["role"] == "assistant" and seen["state"] != "writing"

        wait_until(is_over)
        return seen

    def tab(self) -> Tab:
        address = self._url.replace("http", "ws", 1) + "/api/chat/events"
        headers = {"Cookie": self.cookie}
        return Tab(
            connect(
                address,
                origin=self._url,  # type: ignore[arg-type]
                additional_headers=headers,
                proxy=None,
                max_size=None,
            )
        )

    def close(self) -> None:
        self.http.close()


class Tab:
    """One event connection. `seen` keeps all that came."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[dict[str, Any]] = []

    def watch(self, conversation_id: str | None) -> None:
        self.connection.send(json.dumps({"type": "watch", "conversation_id": conversation_id}))

    def next(self, timeout_s: float = 10.0) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.connection.recv(timeout_s))
        self.seen.append(event)
        return event

    def wait_for(self, kind: str, condition: Callable[[Any], bool] = bool) -> dict[str, Any]:
        """The next event of this type that is so."""
        while True:
            event = self.next()
            if event["type"] == kind and condition(event):
                return event

    def wait_for_end(self) -> dict[str, Any]:
        """The watched conversation's last message, once nothing is being written."""

        def is_over(event: Any) -> bool:
            messages = event["conversation"]["messages"]
            return bool(messages) and messages[-1]["state"] != "writing"

        message: dict[str, Any] = self.wait_for("conversation", is_over)["conversation"][
            "messages"
        ][-1]
        return message

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ChatSite:
    """The whole application around an engine that a test controls."""

    def __init__(self, url: str, engine: InProcessEngine, runner: FakeRunner) -> None:
        self.url = url
        self.engine = engine
        self.runner = runner
        self._people: list[PersonAtSite] = []

    def person(self, cookie: str | None = None) -> PersonAtSite:
        self._people.append(PersonAtSite(self.url, cookie))
        return self._people[-1]

    def close(self) -> None:
        for person in self._people:
            person.close()


@contextlib.contextmanager
def chat_site(
    tokenizer_path: Path,
    data_dir: Path,
    runner: FakeRunner | None = None,
    engine: Mapping[str, Any] = MappingProxyType({}),
    chat: Mapping[str, Any] = MappingProxyType({}),
    **config: Any,
) -> Iterator[ChatSite]:
    """Serve it; with the `data_dir` of an earlier one it is that one, restarted."""
    runner = runner or FakeRunner(8)
    running = make_chat_engine(tokenizer_path, runner, **engine)
    app = asyncio.run(
        _create_app(running, ServerConfig(data_dir=data_dir, **config), ChatConfig(**chat))
    )
    with served(app, lifespan="on") as url:
        wait_until(lambda: running.status().state is EngineState.READY)
        site = ChatSite(url, running, runner)
        try:
            yield site
        finally:
            site.close()


async def _create_app(
    engine: InProcessEngine, config: ServerConfig, chat_config: ChatConfig
) -> FastAPI:
    """Inside an event loop: Gradio opens some of its own, and leaks them, where none runs."""
    return create_web_app(
        engine=engine, monitor=Monitor(engine.stats), config=config, chat_config=chat_config
    )
