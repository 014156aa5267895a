"""The page: two tabs, and which action of a person calls which handler."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

import gradio as gr

from engine import ChatService, Engine
from ui.chat.answers import Answers
from ui.chat.chats import ChatStore
from ui.chat.person import PersonCookie
from ui.chat.settings import ChatSettings
from ui.handlers import NEW_CHAT, ChatHandlers, View
from ui.panels.chat import ChatPanel, build_chat_panel
from ui.panels.dashboard import build_dashboard_panel

MAX_STREAMS = 500
MAX_QUEUED_EVENTS = 2_000
MAX_SESSIONS = 2_000
QUEUE_POLL_S = 0.03
_Updates = dict[gr.components.Component, Any]


class WatchTurns:
    """Which watch of a browser tab is its newest; an older one ends by itself.

    With Gradio's own state every tab would hold a connection, and browsers have six for a host.
    """

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._turn_by_session: OrderedDict[str, int] = OrderedDict()

    def begin(self, session_hash: str) -> int:
        turn = self._turn_by_session.pop(session_hash, 0) + 1
        self._turn_by_session[session_hash] = turn
        while len(self._turn_by_session) > self._max_sessions:
            self._turn_by_session.popitem(last=False)
        return turn

    def is_newest(self, session_hash: str, turn: int) -> bool:
        return self._turn_by_session.get(session_hash) == turn


def build_page(
    *, engine: Engine, chat: ChatService, chats: ChatStore, people: PersonCookie
) -> gr.Blocks:
    """Chat and Dashboard. Mount it behind `PersonMiddleware(cookie=people)`."""
    handlers = ChatHandlers(engine, chats, Answers(engine, chat, chats))
    page: gr.Blocks
    with gr.Blocks(title="Hearth", fill_width=True, fill_height=True) as page:
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Chat", id="chat"):
                panel = build_chat_panel()
            with gr.Tab("Dashboard", id="dashboard"):
                build_dashboard_panel()
        _ChatWiring(panel, handlers, people).wire(page)
    # Streams count as jobs too; the engine has its own queue and bounds.
    page.max_threads = MAX_STREAMS
    page.state_session_capacity = MAX_SESSIONS
    page.queue(default_concurrency_limit=None, max_size=MAX_QUEUED_EVENTS, api_open=False)
    # Gradio looks for new events every millisecond, which takes a fifth of what the interpreter
    # can do from the engine's thread. What people press does not wait here, only streams start.
    page._queue.sleep_when_free = QUEUE_POLL_S
    page._queue.progress_update_sleep_when_free = QUEUE_POLL_S
    return page


class _ChatWiring:
    """Gradio's side of the handlers: requests become persons, Views become updates."""

    def __init__(self, panel: ChatPanel, handlers: ChatHandlers, people: PersonCookie) -> None:
        self._panel = panel
        self._handlers = handlers
        self._people = people
        self._turns = WatchTurns(MAX_SESSIONS)

    def wire(self, page: gr.Blocks) -> None:
        panel = self._panel
        asked = [panel.chat_id, panel.question, *panel.settings.inputs()]
        again = [panel.chat_id, *panel.settings.inputs()]
        self._on(page.load, self._open_page, [])
        self._on(panel.question.submit, self._send, asked)
        self._on(panel.send.click, self._send, asked)
        self._on(panel.regenerate.click, self._regenerate, again)
        self._on(panel.new_chat.click, self._new_chat, [])
        self._on(panel.chat_list.input, self._open_chat, [panel.chat_list])
        self._on(panel.delete_chat.click, self._delete, [panel.chat_id])
        self._on(panel.resume.click, self._resume, [panel.chat_id])
        self._event(panel.pause.click, self._pause, [])
        self._event(panel.stop.click, self._stop, [panel.chat_id])

    def _on(self, trigger: Callable[..., Any], fn: Callable[..., Any], inputs: list[Any]) -> None:
        """Act at once, then watch the chat that is open afterwards."""
        event = self._event(trigger, fn, inputs)
        event.then(
            self._watch,
            inputs=[self._panel.chat_id],
            outputs=self._panel.outputs(),
            show_progress="hidden",
            api_visibility="private",
            concurrency_limit=None,
            trigger_mode="multiple",
        )

    def _event(self, trigger: Callable[..., Any], fn: Callable[..., Any], inputs: list[Any]) -> Any:
        return trigger(
            fn,
            inputs=inputs,
            outputs=self._panel.outputs(),
            queue=False,
            show_progress="hidden",
            api_visibility="private",
            trigger_mode="multiple",
        )

    def _person(self, request: gr.Request) -> str:
        person = self._people.person_of(request.cookies)
        if person is None:
            raise gr.Error("Your browser sent no valid cookie. Allow cookies and reload the page.")
        return person

    async def _open_page(self, request: gr.Request) -> _Updates:
        return self._show(self._handlers.open_page(self._person(request)))

    async def _open_chat(self, chat_id: str | None, request: gr.Request) -> _Updates:
        return self._show(self._handlers.open_chat(self._person(request), chat_id or NEW_CHAT))

    async def _new_chat(self, request: gr.Request) -> _Updates:
        return self._show(self._handlers.open_chat(self._person(request), NEW_CHAT))

    async def _send(
        self, request: gr.Request, chat_id: str, question: str, *settings: Any
    ) -> _Updates:
        person = self._person(request)
        view = await self._handlers.send(
            person, chat_id, question, ChatSettings.from_controls(*settings)
        )
        return self._show(view)

    async def _regenerate(self, request: gr.Request, chat_id: str, *settings: Any) -> _Updates:
        person = self._person(request)
        return self._show(
            await self._handlers.regenerate(person, chat_id, ChatSettings.from_controls(*settings))
        )

    async def _stop(self, chat_id: str, request: gr.Request) -> _Updates:
        return self._show(self._handlers.stop(self._person(request), chat_id))

    async def _delete(self, chat_id: str, request: gr.Request) -> _Updates:
        return self._show(self._handlers.delete(self._person(request), chat_id))

    async def _pause(self, request: gr.Request) -> _Updates:
        self._turns.begin(_session(request))
        return self._show(View())

    async def _resume(self, chat_id: str, request: gr.Request) -> _Updates:
        return self._show(self._handlers.resume(self._person(request), chat_id))

    async def _watch(self, chat_id: str, request: gr.Request) -> AsyncIterator[_Updates]:
        session = _session(request)
        turn = self._turns.begin(session)
        async for view in self._handlers.watch(self._person(request), chat_id):
            if not self._turns.is_newest(session, turn):
                break
            yield self._show(view)
        # Gradio sends the last update once more at the end: let that be one that changes nothing.
        yield self._show(View())

    def _show(self, view: View) -> _Updates:
        # Gradio wants at least one entry to leave everything else as it is.
        return self._panel.updates(view) or {self._panel.status: gr.skip()}


def _session(request: gr.Request) -> str:
    return request.session_hash or ""
