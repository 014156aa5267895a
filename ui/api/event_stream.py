"""Server-sent events: how they are written, kept alive, and closed with the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

DONE_EVENT = b"data: [DONE]\n\n"
_Item = TypeVar("_Item")


def data_event(json_text: str) -> bytes:
    return b"data: " + json_text.encode() + b"\n\n"


def comment(text: str) -> bytes:
    """A line that clients skip and proxies see."""
    return b": " + text.encode() + b"\n\n"


class EventStreamResponse(StreamingResponse):
    """A stream of events; `on_close` runs when it ends, the client leaves or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store"})
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_close()


async def or_silence(items: AsyncIterator[_Item], interval_s: float) -> AsyncIterator[_Item | None]:
    """The items, and None whenever `interval_s` pass without one; reading is never cut short."""
    iterator = aiter(items)
    upcoming = asyncio.ensure_future(_next_of(iterator))
    try:
        while True:
            done, _ = await asyncio.wait({upcoming}, timeout=interval_s)
            if not done:
                yield None
                continue
            item = upcoming.result()
            if item is None:
                return
            yield item
            upcoming = asyncio.ensure_future(_next_of(iterator))
    finally:
        upcoming.cancel()


async def _next_of(iterator: AsyncIterator[_Item]) -> _Item | None:
    return await anext(iterator, None)
