"""The conversation view alone in a real browser: the page's modules, and a scripted server.

The server speaks docs/protocol.md, keeps no tree and decides nothing: a test says what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from tests.web_factories import served
from ui.middleware import SecurityHeaders
from ui.theme import ASSETS, hearth_theme

Frame = dict[str, Any]

CONVERSATION = "c-1"
FACTS: Frame = {
    "finish_reason": "stop",
    "error": None,
    "num_prompt_tokens": 2310,
    "num_cached_tokens": 1498,
    "num_output_tokens": 512,
    "tokens_per_s": 42.13,
    "ttft_s": 3.61,
    "queued_s": 3.1,
    "prefill_s": 0.5,
    "decode_s": 12.2,
    "num_ahead": 12,
    "num_running": 8,
    "num_preemptions": 2,
    "num_recomputed_tokens": 4096,
    "mean_step_requests": 8.3,
}
SETTINGS: Frame = {"system_prompt": "", "temperature": 0.7, "max_tokens": 512}
_NUMBERS = (
    "queue_position",
    "expected_wait_s",
    "num_computed_tokens",
    "num_prompt_tokens",
    "num_output_tokens",
    "tokens_per_s",
)
_WINDOW = 40
_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
  <link rel="icon" href="data:,"><style>%s</style>
  <style>body { margin: 0; background: var(--body-background-fill); color: var(--body-text-color);
    font-family: var(--font); } #box { position: relative; height: 100dvh; }
    * { box-sizing: border-box; }</style>
</head>
<body>
  <div id="box"><section id="conversation-view"></section></div>
  <script type="module">
    import { loadTexts } from "/assets/chat/i18n.js";
    import { ChatState } from "/assets/chat/state.js";
    import { mountConversation } from "/assets/chat/conversation.js";
    const parameters = new URLSearchParams(location.search);
    document.body.classList.toggle("dark", parameters.has("dark"));
    await loadTexts();
    const state = new ChatState();
    state.settings = %s;
    window.problems = [];
    state.addEventListener("problem", (event) => window.problems.push(event.detail));
    state.addEventListener("context_full", (event) => (window.full = event.detail));
    window.state = state;
    window.view = mountConversation(document.querySelector("#conversation-view"), state);
    state.open(parameters.get("c"));
  </script>
</body>
</html>
"""
_TWO_FRAMES = "() => new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))"


def question(message_id: str, text: str, **fields: Any) -> Frame:
    return _message(message_id, "user", text, fields)


def answer(message_id: str, text: str, **fields: Any) -> Frame:
    return _message(message_id, "assistant", text, {"facts": dict(FACTS), **fields})


def _message(message_id: str, role: str, text: str, fields: Frame) -> Frame:
    return {
        "message_id": message_id,
        "parent_id": None,
        "role": role,
        "text": text,
        "revision": 1,
        "state": "done",
        "created_s": 1.0,
        "variant_ids": [message_id],
        "facts": None,
        "cut": None,
        **fields,
    }


@dataclass
class _Socket:
    """One tab, what it watches and which texts it was sent."""

    socket: WebSocket
    watched: str | None = None
    sent: set[tuple[str, int]] = field(default_factory=set)

    def without_known(self, message: Frame) -> Frame:
        key = (message["message_id"], message["revision"])
        if key in self.sent:
            return {**message, "text": None}
        self.sent.add(key)
        return message


class ScriptedServer:
    """All methods are for the test's thread."""

    def __init__(self) -> None:
        self.conversations: dict[str, list[Frame]] = {CONVERSATION: []}
        self.calls: list[tuple[str, str, Frame]] = []
        self.refusals: dict[str, tuple[int, Frame]] = {}  # the end of a path -> what it answers
        self.engine: Frame = {"state": "ready", "message": "", "num_restarts": 0, "model": None}
        self.on_call: Callable[[str, str, Frame], None] = lambda method, path, body: None
        self.is_refusing = False  # new sockets
        self.live_text = ""
        self.num_connections = 0
        self._sockets: list[_Socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.app = self._make_app()

    # --- what happens ---

    def show(self, *messages: Frame, conversation_id: str = CONVERSATION) -> None:
        """The path has these messages from now on; tabs that watch it are told."""
        parent: str | None = None
        for message in messages:
            message["parent_id"] = parent
            parent = message["message_id"]
        self.conversations[conversation_id] = list(messages)
        self._run(self._tell_conversation(conversation_id))

    def messages(self) -> list[Frame]:
        return self.conversations[CONVERSATION]

    def change(self, message_id: str, **fields: Any) -> None:
        """Change a message and tell the tabs."""
        for message in self.messages():
            if message["message_id"] == message_id:
                message.update(fields, revision=message["revision"] + 1)
        self._run(self._tell_conversation(CONVERSATION))

    def begin(self, message_id: str = "a-live", **fields: Any) -> None:
        """An answer begins at the end of the path."""
        self.live_text = ""
        live = answer(message_id, "", state="writing", facts=None, **fields)
        self.show(*self.messages(), live)

    def write(self, text: str = "", phase: str = "writing", **numbers: Any) -> None:
        """More of the answer."""
        self.live_text += text
        self.emit(self._answer_frame({"is_whole": False, "text": text, "phase": phase, **numbers}))

    def end(self, state: str = "done", **fields: Any) -> None:
        fields = {"facts": dict(FACTS), **fields}
        live = self.messages()[-1]["message_id"]
        self.change(live, text=self.live_text, state=state, **fields)

    def set_engine(self, **fields: Any) -> None:
        self.engine.update(fields)
        self.emit({"type": "engine", **self.engine})

    def emit(self, frame: Frame) -> None:
        self._run(self._send_all(frame))

    def drop(self) -> None:
        """Cut every connection."""
        self._run(self._close_all())

    def calls_to(self, end: str) -> list[Frame]:
        return [body for _, path, body in self.calls if path.endswith(end)]

    # --- the protocol ---

    def _make_app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        app.add_api_route("/", self._page, methods=["GET"], response_class=HTMLResponse)
        app.add_api_websocket_route("/api/chat/events", self._events)
        app.add_api_route("/api/chat/conversations/{conversation_id}", self._get, methods=["GET"])
        app.add_api_route("/api/chat/{path:path}", self._call, methods=["POST", "DELETE"])
        app.mount("/assets", StaticFiles(directory=ASSETS))
        app.add_middleware(SecurityHeaders)
        return app

    async def _page(self) -> HTMLResponse:
        return HTMLResponse(_PAGE % (hearth_theme()._get_theme_css(), SETTINGS))

    async def _get(self, request: Request, conversation_id: str) -> Response:
        self.calls.append(("GET", str(request.url.path), {}))
        query = parse_qs(request.url.query)
        messages = self.conversations.get(conversation_id)
        if messages is None:
            return JSONResponse({"error": {"code": "not_found", "message": "None."}}, 404)
        before = query.get("before", [None])[0]
        ids = [message["message_id"] for message in messages]
        end = ids.index(before) if before else len(messages)
        start = max(end - int(query.get("limit", ["40"])[0]), 0)
        return JSONResponse(_conversation(conversation_id, messages[start:end], start))

    async def _call(self, request: Request, path: str) -> Response:
        body = await request.json() if request.method == "POST" else {}
        self.calls.append((request.method, path, body))
        for end, (status, content) in self.refusals.items():
            if path.endswith(end):
                return JSONResponse(content, status)
        # The test's script blocks; it must not hold up the loop it sends its events through.
        await asyncio.get_running_loop().run_in_executor(
            None, self.on_call, request.method, path, body
        )
        ids = {"conversation_id": CONVERSATION, "question_id": body.get("question_id", "q")}
        return JSONResponse({**ids, "answer_id": "a-live"})

    async def _events(self, socket: WebSocket) -> None:
        self._loop = asyncio.get_running_loop()
        if self.is_refusing:
            await socket.close()
            return
        await socket.accept()
        self.num_connections += 1
        tab = _Socket(socket)
        self._sockets.append(tab)
        try:
            await _send(socket, {"type": "hello", "person": "p", "server_id": "s-1"})
            await _send(socket, {"type": "engine", **self.engine})
            await _send(socket, {"type": "entries", "entries": []})
            while True:
                await self._take(tab, await socket.receive_json())
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            if tab in self._sockets:
                self._sockets.remove(tab)

    async def _take(self, tab: _Socket, frame: Frame) -> None:
        if frame["type"] == "ping":
            await _send(tab.socket, {"type": "pong"})
            return
        tab.watched = frame["conversation_id"]
        if tab.watched in self.conversations:
            await self._send_conversation(tab, tab.watched)
        elif tab.watched is not None:
            await _send(tab.socket, {"type": "gone", "conversation_id": tab.watched})

    async def _tell_conversation(self, conversation_id: str) -> None:
        for tab in list(self._sockets):
            if tab.watched == conversation_id:
                await self._send_conversation(tab, conversation_id)

    async def _send_conversation(self, tab: _Socket, conversation_id: str) -> None:
        messages = self.conversations[conversation_id]
        start = max(len(messages) - _WINDOW, 0)
        shown = [tab.without_known(message) for message in messages[start:]]
        conversation = _conversation(conversation_id, shown, start)
        await _send(tab.socket, {"type": "conversation", "conversation": conversation})
        if messages and messages[-1]["state"] == "writing":
            whole = {"is_whole": True, "text": self.live_text, "phase": "preparing"}
            await _send(tab.socket, self._answer_frame(whole))

    def _answer_frame(self, fields: Frame) -> Frame:
        unknown = dict.fromkeys(_NUMBERS)
        ids = {"conversation_id": CONVERSATION, "message_id": self.messages()[-1]["message_id"]}
        return {"type": "answer", **ids, **unknown, **fields}

    async def _send_all(self, frame: Frame) -> None:
        for tab in list(self._sockets):
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await _send(tab.socket, frame)

    async def _close_all(self) -> None:
        for tab in list(self._sockets):
            self._sockets.remove(tab)
            with contextlib.suppress(RuntimeError):
                await tab.socket.close(1012)

    def _run(self, work: Any) -> None:
        if self._loop is None:
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


async def _send(socket: WebSocket, frame: Frame) -> None:
    await socket.send_text(json.dumps(frame))  # ASCII: half a character may be in it


def _conversation(conversation_id: str, messages: list[Frame], num_earlier: int) -> Frame:
    return {
        "conversation_id": conversation_id,
        "title": "A chat",
        "is_pinned": False,
        "is_archived": False,
        "updated_s": 1.0,
        "settings": SETTINGS,
        "messages": messages,
        "num_earlier": num_earlier,
        "context": None,
    }


class View:
    """A tab that shows one conversation, and all that went wrong in it."""

    def __init__(
        self, context: BrowserContext, url: str, path: str = f"/?c={CONVERSATION}"
    ) -> None:
        self.page: Page = context.new_page()
        self.errors: list[str] = []
        self.url = url
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.on("request", self._on_request)
        self.page.set_default_timeout(10_000)
        self.page.goto(url + path)
        self.page.wait_for_function("window.state?.connection === 'open'")

    def _on_console(self, message: Any) -> None:
        # A lost connection is what some tests are about.
        if message.type == "error" and "WebSocket" not in message.text:
            self.errors.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, self.url.replace("http", "ws"), "data:", "blob:")):
            self.errors.append(f"asked for {request.url}")

    def message(self, message_id: str) -> Locator:
        # A new message counts as out of sight, and so without a text, for up to two frames.
        self.page.evaluate(_TWO_FRAMES)
        return self.page.locator(f'[data-message-id="{message_id}"]')

    def text(self, message_id: str) -> Locator:
        return self.message(message_id).locator("> .text")

    def press(self, message_id: str, action: str) -> None:
        self.message(message_id).hover()
        self.message(message_id).locator(f'[data-action="{action}"]').click()

    def wait_for(self, condition: str, limit_s: float = 10) -> None:
        self.page.wait_for_function(condition, timeout=limit_s * 1000)

    def wait_until(self, condition: Callable[[], bool], limit_s: float = 10) -> None:
        """The page's events are only delivered while Playwright itself waits."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.page.inner_text("#box")
            self.page.wait_for_timeout(20)

    @property
    def distance_px(self) -> float:
        """From what is seen to the end of the conversation."""
        return float(
            self.page.evaluate(
                "(() => { const s = document.querySelector('.scroller');"
                " return s.scrollHeight - s.scrollTop - s.clientHeight; })()"
            )
        )


@contextlib.contextmanager
def opened_view(
    browser: Browser, server: ScriptedServer, path: str = f"/?c={CONVERSATION}", **context: Any
) -> Iterator[View]:
    """The view on a scripted server, without errors at the end. `context`: of the browser."""
    with served(server.app) as url:
        opened = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **context})
        try:
            view = View(opened, url, path)
            yield view
            assert view.errors == []
        finally:
            opened.close()
