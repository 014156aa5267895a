"""Conversations on a scripted engine and a real database, for tests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine import ChatService, Engine, FinishReason, ModelInfo, Usage
from tests.fake_runner import FakeClock
from tests.fakes import ScriptedChat, ScriptedChatStream
from ui.chat.config import ChatConfig
from ui.chat.conversation import Asked
from ui.chat.conversations import Conversations
from ui.chat.settings import ChatSettings
from ui.chat.storage.database import open_database
from ui.chat.storage.store import ConversationLimits, ConversationStore, TextUpdate

_LIMIT_S = 10.0


async def until(condition: Callable[[], Any], limit_s: float = _LIMIT_S) -> None:
    """Let others work until the condition is true."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.001)


class CountingStore(ConversationStore):
    """A real store that counts its transactions for texts, and fails when told to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.written: list[list[TextUpdate]] = []
        self.failure: Exception | None = None  # of every write of an answer
        self.num_failed_ends = 0
        self.asking_failure: Exception | None = None

    def ask(self, person: str, **values: Any) -> Asked:
        if self.asking_failure is not None:
            raise self.asking_failure
        return super().ask(person, **values)

    def write_texts(self, updates: Sequence[TextUpdate]) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append(list(updates))
        super().write_texts(updates)

    def finish_answer(self, message_id: str, **values: Any) -> None:
        if self.failure is not None:
            self.num_failed_ends += 1
            raise self.failure
        super().finish_answer(message_id, **values)


class Desk:
    """The chat service of a server whose engine says what a test wants, or of a real one.

    Alice is who asks, where nobody is named.
    """

    def __init__(
        self,
        directory: Path,
        info: ModelInfo | None = None,
        real_engine: Engine | None = None,
        **config: Any,
    ) -> None:
        self.engine = ScriptedChat(info)
        engine, service = (
            (self.engine, self.engine)
            if real_engine is None
            else (real_engine, ChatService(real_engine))
        )
        self.database = open_database(directory)
        self.wall = FakeClock()
        self.clock = FakeClock()
        self.store = CountingStore(self.database, ConversationLimits(), self.wall)
        self.conversations = Conversations(
            engine,
            service,  # type: ignore[arg-type]
            self.store,
            config=ChatConfig(**config),
            clock=self.clock,
        )

    @property
    def answers(self) -> Any:
        return self.conversations._answers

    async def ask(
        self,
        text: str = "Hello",
        conversation_id: str | None = None,
        person: str = "alice",
        **options: Any,
    ) -> dict[str, Any]:
        options = {"question_id": secrets.token_urlsafe(16), "settings": ChatSettings()} | options
        return await self.conversations.ask(
            person, conversation_id=conversation_id, text=text, **options
        )

    async def messages(self, asked: dict[str, Any], person: str = "alice") -> list[dict[str, Any]]:
        shown = await self.conversations.conversation(person, asked["conversation_id"])
        messages: list[dict[str, Any]] = shown["messages"]
        return messages

    async def last(self, asked: dict[str, Any], person: str = "alice") -> dict[str, Any]:
        return (await self.messages(asked, person))[-1]

    async def end_of(
        self, asked: dict[str, Any], person: str = "alice", limit_s: float = _LIMIT_S
    ) -> dict[str, Any]:
        """The last message once nothing is being written there any more."""
        await until(lambda: self.answers.find(person, asked["conversation_id"]) is None, limit_s)
        return await self.last(asked, person)

    async def answered(
        self, text: str, answer: str, conversation_id: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Ask, and let the engine answer."""
        asked = await self.ask(text, conversation_id, **options)
        say_all(self.engine.streams[-1], answer)
        await self.end_of(asked, options.get("person", "alice"))
        return asked


@asynccontextmanager
async def opened(directory: Path, **options: Any) -> AsyncIterator[Desk]:
    desk = Desk(directory, **options)
    try:
        await desk.conversations.start()
        yield desk
    finally:
        await desk.conversations.close()
        desk.database.close()


def say_all(stream: ScriptedChatStream, text: str) -> None:
    """The whole answer at once."""
    usage = Usage(40, 0, 3)
    stream.say(text, token_ids=(1, 2, 3), usage=usage)
    stream.say(finish_reason=FinishReason.STOP, usage=usage)


async def events_until(
    watch: Any, is_last: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """The watch's events up to the first one that `is_last`, that one included."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(_LIMIT_S):
        async for event in watch:
            events.append(event)
            if is_last(event):
                return events
    raise AssertionError(f"the watch ended: {events}")
