"""What happens on the chat page, as plain data: who asks in, a `View` out. Knows no Gradio.

Every handler takes the person and looks chats up as theirs, so nobody reaches another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine import Engine, EngineState, HearthError
from ui.chat.answers import Answers
from ui.chat.chats import (
    Chat,
    ChatError,
    ChatNotFoundError,
    ChatStore,
    Message,
    without_last_reply,
)
from ui.chat.settings import ChatSettings
from ui.formatting import progress_line

NEW_CHAT = ""
_LOADING_INTERVAL_S = 0.5


class ContextUse(NamedTuple):
    num_tokens: int
    max_tokens: int


class ChatEntry(NamedTuple):
    """One line of the list of chats."""

    title: str
    chat_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the page shall show. None leaves a part as it is."""

    chat_id: str | None = None  # NEW_CHAT: nothing is kept yet
    messages: tuple[Message, ...] | None = None
    chats: tuple[ChatEntry, ...] | None = None
    question: str | None = None
    settings: ChatSettings | None = None
    notice: str | None = None
    live_text: str | None = None
    status: str | None = None
    is_answering: bool | None = None
    is_ready: bool | None = None
    context: ContextUse | None = None


class ChatHandlers:
    """The chat page's actions."""

    def __init__(self, engine: Engine, store: ChatStore, answers: Answers) -> None:
        self._engine = engine
        self._store = store
        self._answers = answers

    def open_page(self, person: str) -> View:
        """The chat this person used last, or a new one."""
        chats = self._store.chats_of(person)
        return self.open_chat(person, chats[0].chat_id if chats else NEW_CHAT)

    def open_chat(self, person: str, chat_id: str) -> View:
        try:
            chat = self._chat(person, chat_id)
        except ChatNotFoundError as error:
            return replace(self.open_chat(person, NEW_CHAT), notice=str(error))
        settings = chat.settings if chat.messages else self._default_settings()
        return replace(
            self._view(person, chat), settings=settings, question="", notice=self._engine_notice()
        )

    def resume(self, person: str, chat_id: str) -> View:
        """Show an open chat as it is by now, without touching what is being typed or set."""
        try:
            return self._view(person, self._chat(person, chat_id))
        except ChatNotFoundError:
            return self.open_page(person)

    async def send(self, person: str, chat_id: str, text: str, settings: ChatSettings) -> View:
        """Ask. What cannot be sent stays in the box, with a notice that says why."""
        if not text.strip():
            return View()
        try:
            chat = self._chat(person, chat_id) if chat_id else self._store.new_chat(person)
            asked = self._store.with_question(replace(chat, settings=settings), text)
            await self._answers.start(person, asked)
        except (ChatError, HearthError) as error:
            return View(notice=str(error))
        return replace(self._view(person, asked), question="", notice="")

    async def regenerate(self, person: str, chat_id: str, settings: ChatSettings) -> View:
        try:
            chat = without_last_reply(self._chat(person, chat_id))
            chat = replace(chat, settings=settings)
            await self._answers.start(person, chat)
        except (ChatError, HearthError) as error:
            return View(notice=str(error))
        return replace(self._view(person, chat), notice="")

    def stop(self, person: str, chat_id: str) -> View:
        self._answers.stop(person, chat_id)
        return View()

    def delete(self, person: str, chat_id: str) -> View:
        self._answers.stop(person, chat_id)
        if chat_id:
            try:
                self._store.delete(person, chat_id)
            except ChatNotFoundError:
                return self.open_page(person)
        return self.open_page(person)

    async def watch(self, person: str, chat_id: str) -> AsyncIterator[View]:
        """What changes while nobody acts: the model becomes ready, an answer grows and ends."""
        if self._is_loading():
            async for view in self._watch_loading():
                yield view
            yield self._after_loading(person, chat_id)
        answer = self._answers.find(person, chat_id)
        if answer is not None:
            async for snapshot in answer.watch():
                yield View(
                    live_text=snapshot.text, status=progress_line(snapshot), is_answering=True
                )
        try:
            view = self._view(person, self._chat(person, chat_id))
        except ChatNotFoundError:
            return
        # A notice that an answer was still being written has come to its end with it.
        yield view if answer is None else replace(view, notice=self._engine_notice())

    async def _watch_loading(self) -> AsyncIterator[View]:
        while self._is_loading():
            yield View(notice=self._engine_notice(), is_ready=False)
            await asyncio.sleep(_LOADING_INTERVAL_S)

    def _after_loading(self, person: str, chat_id: str) -> View:
        settings = None if chat_id else self._default_settings()
        return View(notice=self._engine_notice(), is_ready=self._is_ready(), settings=settings)

    def _chat(self, person: str, chat_id: str) -> Chat:
        return self._store.get(person, chat_id) if chat_id else Chat(chat_id=NEW_CHAT)

    def _view(self, person: str, chat: Chat) -> View:
        entries = (ChatEntry(kept.title, kept.chat_id) for kept in self._store.chats_of(person))
        return View(
            chat_id=chat.chat_id,
            messages=chat.messages,
            chats=tuple(entries),
            live_text="",
            status="",
            is_answering=self._answers.find(person, chat.chat_id) is not None,
            is_ready=self._is_ready(),
            context=self._context_use(chat),
        )

    def _context_use(self, chat: Chat) -> ContextUse | None:
        if not self._is_ready():
            return None
        used = 0
        for message in chat.messages:
            if message.facts is not None and message.facts.num_prompt_tokens is not None:
                used = message.facts.num_prompt_tokens + (message.facts.num_output_tokens or 0)
        return ContextUse(used, self._engine.model_info().max_model_len)

    def _default_settings(self) -> ChatSettings:
        if not self._is_ready():
            return ChatSettings()
        return ChatSettings().with_defaults_of(self._engine.model_info().generation_defaults)

    def _engine_notice(self) -> str:
        return "" if self._is_ready() else self._engine.status().message

    def _is_ready(self) -> bool:
        return self._engine.status().state is EngineState.READY

    def _is_loading(self) -> bool:
        return self._engine.status().state is EngineState.LOADING
