"""Events kept alive while there is nothing to send, and closed with their connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from ui.api.event_stream import EventStreamResponse, comment, data_event, or_silence

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


async def items_after(gate: asyncio.Event, *items: int) -> AsyncIterator[int]:
    await gate.wait()
    for item in items:
        yield item


def test_events_are_utf8_lines() -> None:
    assert data_event('{"a":"é"}') == b'data: {"a":"\xc3\xa9"}\n\n'
    assert comment("queued 3") == b": queued 3\n\n"


def test_silence_is_told_until_an_item_comes() -> None:
    async def run() -> list[int | None]:
        gate, seen = asyncio.Event(), []
        async for item in or_silence(items_after(gate, 1, 2), 0.001):
            seen.append(item)
            if len(seen) == 3:
                gate.set()
        return seen

    seen = asyncio.run(run())
    assert seen[:3] == [None, None, None]
    assert [item for item in seen if item is not None] == [1, 2]


def test_a_failure_of_the_items_comes_through() -> None:
    async def failing() -> AsyncIterator[int]:
        yield 1
        raise ValueError("gone")

    async def run() -> None:
        async for _ in or_silence(failing(), 10):
            pass

    with pytest.raises(ValueError, match="gone"):
        asyncio.run(run())


@pytest.mark.parametrize("leaves", [True, False])
def test_the_end_of_the_connection_closes_the_stream(leaves: bool) -> None:
    async def run() -> tuple[list[Message], int]:
        sent: list[Message] = []
        num_closed, gate = 0, asyncio.Event()

        def close() -> None:
            nonlocal num_closed
            num_closed += 1

        async def events() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            if leaves:
                await gate.wait()

        async def receive() -> Message:
            while leaves and len(sent) < 2:
                await asyncio.sleep(0)
            if not leaves:
                await gate.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await EventStreamResponse(events(), close)(SCOPE, receive, send)
        return sent, num_closed

    sent, num_closed = asyncio.run(run())
    assert num_closed == 1
    assert sent[1]["body"] == b"data: 1\n\n"
    assert sent[-1]["more_body"] is leaves
