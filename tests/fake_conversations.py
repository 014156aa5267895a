"""A service for the chat's routes that says what a test wants it to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any


class FakeWatch:
    """News of a test's own making; `shown` is what the page asked to see."""

    def __init__(self) -> None:
        self.shown: list[str | None] = []
        self.is_closed = False
        self._news: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue()

    def say(self, news: dict[str, Any] | Exception | None) -> None:
        """An event; an exception that the watch raises; or None: the server stops."""
        self._news.put_nowait(news)

    def show(self, conversation_id: str | None) -> None:
        self.shown.append(conversation_id)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while (news := await self._news.get()) is not None:
            if isinstance(news, Exception):
                raise news
            yield news

    def close(self) -> None:
        self.is_closed = True


class FakeConversations:
    """Notes each call; answers `answers[name]`, raised where it is an exception, or {}."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.watches: list[FakeWatch] = []
        self.first_events: list[dict[str, Any]] = []

    def open_watch(self, person: str) -> FakeWatch:
        watch = FakeWatch()
        for event in self.first_events:
            watch.say(event)
        self.watches.append(watch)
        return watch

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments, options))
            answer = self.answers.get(name, {})
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call
