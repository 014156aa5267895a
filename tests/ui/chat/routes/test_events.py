"""The event connection over real sockets, with news of the test's own making."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fake_conversations import FakeConversations, FakeWatch
from ui.chat.person import PersonCookie, PersonMiddleware
from ui.chat.routes import events as events_module
from ui.chat.routes.events import MAX_FRAME_BYTES, OpenPages, events_router

COOKIE = PersonCookie(b"secret")
ALICE, BOB = COOKIE.issue(), COOKIE.issue()


class Site:
    """The event route alone, served on the test's own event loop."""

    def __init__(self, conversations: FakeConversations, server: uvicorn.Server) -> None:
        self.conversations = conversations
        self.server = server
        self.port: int = server.servers[0].sockets[0].getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"

    def connect(self, value: str | None = ALICE, origin: str | None = "own", **options: Any) -> Any:
        headers = {} if value is None else {"Cookie": f"{COOKIE.name}={value}"}
        return connect(
            f"ws://127.0.0.1:{self.port}/api/chat/events",
            origin=self.origin if origin == "own" else origin,  # type: ignore[arg-type]
            additional_headers=headers,
            **options,
        )

    async def watch(self, number: int = -1) -> FakeWatch:
        """The newest, once the server has opened it."""
        while not self.conversations.watches:
            await asyncio.sleep(0.001)
        return self.conversations.watches[number]

    async def refused(self, **options: Any) -> tuple[int, str]:
        """Status and code of a connection that was refused before it was accepted."""
        with pytest.raises(InvalidStatus) as refused:
            await self.connect(**options)
        body = refused.value.response.body
        assert body is not None
        return refused.value.response.status_code, json.loads(body)["error"]["code"]


@contextlib.asynccontextmanager
async def site(ping_s: float = 20.0, **bounds: int) -> AsyncIterator[Site]:
    conversations = FakeConversations()
    api = FastAPI()
    api.include_router(events_router(conversations, "server-1", **bounds))  # type: ignore[arg-type]
    app = FastAPI()
    app.mount("/api/chat", api)
    app.add_middleware(PersonMiddleware, cookie=COOKIE)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=0,
            log_level="critical",
            timeout_graceful_shutdown=5,
            ws_ping_interval=ping_s,
            ws_ping_timeout=ping_s,
        )
    )
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.001)
    try:
        yield Site(conversations, server)
    finally:
        server.should_exit = True
        await serving


async def next_event(events: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(5):
        event: dict[str, Any] = json.loads(await events.recv())
        return event


async def closed(events: ClientConnection) -> tuple[int, str]:
    """Code and reason of the close that comes, whatever comes before it."""
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await events.recv()
    assert events.close_code is not None
    return events.close_code, events.close_reason or ""


@pytest.mark.anyio
async def test_it_says_hello_and_then_what_is_new() -> None:
    async with site() as page, page.connect() as events:
        hello = await next_event(events)
        assert hello == {"type": "hello", "person": hello["person"], "server_id": "server-1"}
        assert len(hello["person"]) == 6
        assert hello["person"] not in ALICE
        (await page.watch()).say({"type": "entries", "entries": [{"title": "Grüße 你好"}]})
        assert await next_event(events) == {"type": "entries", "entries": [{"title": "Grüße 你好"}]}


@pytest.mark.anyio
async def test_the_page_says_what_it_shows_and_asks_whether_anybody_is_there() -> None:
    async with site() as page, page.connect() as events:
        await next_event(events)
        for shown in ("c1", None, "c2"):
            await events.send(json.dumps({"type": "watch", "conversation_id": shown}))
        await events.send(json.dumps({"type": "ping"}))
        assert await next_event(events) == {"type": "pong"}
        assert (await page.watch()).shown == ["c1", None, "c2"]


@pytest.mark.anyio
async def test_a_page_that_goes_ends_its_watch_at_once() -> None:
    async with site() as page:
        for leave in ("close", "abort"):
            events = await page.connect()
            await next_event(events)
            watch = await page.watch()
            if leave == "close":
                await events.close()
            else:
                events.transport.abort()
            async with asyncio.timeout(1):
                while not watch.is_closed:
                    await asyncio.sleep(0.001)


@pytest.mark.anyio
@pytest.mark.parametrize("value", [None, "alice", PersonCookie(b"other").issue(), ALICE + "0"])
async def test_without_a_valid_cookie_it_is_refused(value: str | None) -> None:
    async with site() as page:
        assert await page.refused(value=value) == (401, "no_cookie")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1", None]
)
async def test_the_page_of_another_server_is_refused(origin: str | None) -> None:
    async with site() as page:
        assert await page.refused(origin=origin) == (403, "foreign_origin")
        assert page.conversations.watches == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"type": "shout"}',
        '{"type": "watch"}',
        '{"type": "watch", "conversation_id": 5}',
        '{"type": "watch", "conversation_id": ""}',
        '{"type": "ping", "more": 1}',
        '{"type": "watch", "conversation_id": "' + "c" * 65 + '"}',
        b'{"type": "ping"}',
    ],
)
async def test_what_is_no_frame_of_the_protocol_ends_the_connection(frame: str | bytes) -> None:
    async with site() as page, page.connect() as events:
        await events.send(frame)
        code, reason = await closed(events)
        assert code == 1008
        assert reason.endswith(".")
        assert (await page.watch()).is_closed
        assert (await page.watch()).shown == []


@pytest.mark.anyio
async def test_a_frame_above_the_bound_ends_the_connection() -> None:
    async with site() as page, page.connect() as events:
        await events.send('{"type": "ping"}' + " " * (MAX_FRAME_BYTES - 16))
        await next_event(events)
        assert await next_event(events) == {"type": "pong"}
        await events.send('{"type": "ping"}' + " " * MAX_FRAME_BYTES)
        assert (await closed(events))[0] == 1009


@pytest.mark.anyio
async def test_the_number_of_pages_is_bounded_in_all_and_for_each_person() -> None:
    async with site(max_pages=3, max_pages_of_person=2) as page:
        first, second = await page.connect(), await page.connect()
        await next_event(first)
        await next_event(second)
        third = await page.connect()
        assert await closed(third) == (1013, "You have 2 pages open: close one.")
        of_bob = await page.connect(BOB)
        await next_event(of_bob)
        refused = await page.connect(COOKIE.issue())
        assert (await closed(refused))[0] == 1013
        await first.close()
        async with asyncio.timeout(1):
            while not page.conversations.watches[0].is_closed:
                await asyncio.sleep(0.001)
        again = await page.connect()
        assert (await next_event(again))["type"] == "hello"
        for events in (second, of_bob, again):
            await events.close()


def test_counts_of_persons_who_left_are_forgotten() -> None:
    pages = OpenPages(max_pages=1, max_pages_of_person=1)
    assert pages.open("alice") is None
    assert pages.open("bob") is not None
    pages.close("alice")
    assert pages.open("bob") is None
    assert dict(pages._num_by_person) == {"bob": 1}


@pytest.mark.anyio
async def test_the_end_of_the_news_is_told_as_the_servers_end() -> None:
    async with site() as page, page.connect() as events:
        (await page.watch()).say(None)
        assert await closed(events) == (1001, "The server is stopping.")


@pytest.mark.anyio
async def test_a_fault_is_logged_and_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with site() as page, page.connect() as events:
        (await page.watch()).say(ZeroDivisionError("secret"))
        code, reason = await closed(events)
        assert (code, "secret" in reason) == (1011, False)
        assert (await page.watch()).is_closed
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.anyio
async def test_fifty_watchers_get_the_same_news() -> None:
    async with site() as page, contextlib.AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(page.connect()) for _ in range(50)]
        await asyncio.gather(*(next_event(events) for events in pages))
        for watch in page.conversations.watches:
            watch.say({"type": "entry_gone", "conversation_id": "c1"})
        got = await asyncio.gather(*(next_event(events) for events in pages))
        assert got == [{"type": "entry_gone", "conversation_id": "c1"}] * 50
        watches = page.conversations.watches
    assert all(watch.is_closed for watch in watches)


def unread_page(page: Site) -> socket.socket:
    """A page that opens its event connection and then reads nothing at all."""
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect(("127.0.0.1", page.port))
    lines = [
        "GET /api/chat/events HTTP/1.1",
        f"Host: 127.0.0.1:{page.port}",
        f"Origin: {page.origin}",
        f"Cookie: {COOKIE.name}={ALICE}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    stuck.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    return stuck


@pytest.fixture
def short_send_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "SEND_LIMIT_S", 0.3)


@pytest.mark.anyio
async def test_a_page_that_never_reads_takes_no_more_news_and_is_given_up(
    short_send_limit: None,
) -> None:
    async with site() as page:
        with unread_page(page):
            watch = await page.watch()
            for _ in range(2000):
                watch.say({"type": "answer", "text": "x" * 10_000})
            async with asyncio.timeout(5):
                while not watch.is_closed:
                    await asyncio.sleep(0.01)
            assert watch._news.qsize() > 500  # it was not all taken into memory
            async with page.connect(BOB) as other:
                assert (await next_event(other))["type"] == "hello"


@pytest.mark.anyio
async def test_a_page_whose_machine_is_gone_is_noticed() -> None:
    """It says no goodbye and answers no ping."""
    async with site(ping_s=0.1) as page:
        with unread_page(page):
            watch = await page.watch()
            async with asyncio.timeout(5):
                while not watch.is_closed:
                    await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_the_server_stops_quickly_with_pages_open() -> None:
    async with site() as page:
        pages = [await page.connect() for _ in range(20)]
        with unread_page(page):
            while len(page.conversations.watches) < 21:
                await asyncio.sleep(0.001)
            for watch in page.conversations.watches:
                watch.say(None)
            page.server.should_exit = True
            start_s = time.monotonic()
            codes = await asyncio.gather(*(closed(events) for events in pages))
            while page.server.server_state.connections:
                await asyncio.sleep(0.01)
            assert time.monotonic() - start_s < 2
    assert {code for code, _ in codes} <= {1001, 1012}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
