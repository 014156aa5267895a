"""The event connection of one browser tab: what it shows goes in, what is new comes out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ui.chat.conversations import Conversations
from ui.chat.routes.caller import foreign_origin, person_of
from ui.chat.routes.errors import ChatApiError
from ui.chat.routes.schemas import Id
from ui.chat.watch import Watch

MAX_PAGES = 1000
MAX_PAGES_OF_PERSON = 64
MAX_FRAME_BYTES = 64 * 1024
SEND_LIMIT_S = 60.0  # a tab that takes nothing for so long is gone, whatever its network says
_GOING_AWAY, _AGAINST_POLICY, _TOO_LARGE, _FAULT, _TRY_LATER = 1001, 1008, 1009, 1011, 1013
_log = logging.getLogger("hearth.chat")


class _Frame(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class WatchFrame(_Frame):
    type: Literal["watch"]
    conversation_id: Id | None


class PingFrame(_Frame):
    type: Literal["ping"]


_FRAMES: TypeAdapter[WatchFrame | PingFrame] = TypeAdapter(
    Annotated[WatchFrame | PingFrame, Field(discriminator="type")]
)


class OpenPages:
    """How many event connections there are, in all and of each person."""

    def __init__(self, max_pages: int, max_pages_of_person: int) -> None:
        self._max_pages = max_pages
        self._max_pages_of_person = max_pages_of_person
        self._num_by_person: Counter[str] = Counter()

    def open(self, person: str) -> str | None:
        """Count one more; or the sentence that says why not."""
        if self._num_by_person.total() >= self._max_pages:
            return f"{self._max_pages} pages are open on this server: try again later."
        if self._num_by_person[person] >= self._max_pages_of_person:
            return f"You have {self._max_pages_of_person} pages open: close one."
        self._num_by_person[person] += 1
        return None

    def close(self, person: str) -> None:
        self._num_by_person[person] -= 1
        if not self._num_by_person[person]:
            del self._num_by_person[person]


def events_router(
    conversations: Conversations,
    server_id: str,
    *,
    max_pages: int = MAX_PAGES,
    max_pages_of_person: int = MAX_PAGES_OF_PERSON,
) -> APIRouter:
    router = APIRouter()
    pages = OpenPages(max_pages, max_pages_of_person)

    @router.websocket("/events")
    async def events(websocket: WebSocket) -> None:
        try:
            person = _person_of_page(websocket)
        except ChatApiError as error:
            await websocket.send_denial_response(error.response())
            return
        await websocket.accept()
        refusal = pages.open(person)
        if refusal is not None:
            await websocket.close(_TRY_LATER, refusal)
            return
        try:
            hello = {"type": "hello", "person": _short(person), "server_id": server_id}
            await _EventConnection(websocket, conversations.open_watch(person)).run(hello)
        finally:
            pages.close(person)

    return router


def _person_of_page(websocket: WebSocket) -> str:
    """Browsers always name the page that opens a WebSocket, and open it for any page."""
    person = person_of(websocket)
    if "origin" not in websocket.headers:
        raise foreign_origin(websocket)
    return person


def _short(person: str) -> str:
    """Tells two persons apart, in a log for example, and gives neither away."""
    return hashlib.sha256(person.encode()).hexdigest()[:6]


class _End(NamedTuple):
    code: int
    reason: str


class _EventConnection:
    """Reads and sends until one of both ends."""

    def __init__(self, websocket: WebSocket, watch: Watch) -> None:
        self._websocket = websocket
        self._watch = watch

    async def run(self, hello: dict[str, Any]) -> None:
        tasks = [asyncio.create_task(self._send_news(hello)), asyncio.create_task(self._read())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = next(task for task in tasks if task.done())
            end = ended.result()
        except (WebSocketDisconnect, TimeoutError):
            return  # the page has gone
        except Exception:
            _log.exception("fault in an event connection")
            end = _End(_FAULT, "The server failed; its log has the details.")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._watch.close()
        await self._close(end)

    async def _close(self, end: _End) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self._websocket.close(end.code, end.reason)
        except (TimeoutError, WebSocketDisconnect, RuntimeError):
            pass  # it was closed by the other side meanwhile

    async def _send_news(self, hello: dict[str, Any]) -> _End:
        await self._send(hello)
        async for event in self._watch:
            await self._send(event)
        return _End(_GOING_AWAY, "The server is stopping.")

    async def _send(self, event: dict[str, Any]) -> None:
        """Waits for a page that reads slowly; meanwhile the watch joins what is new."""
        text = json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        async with asyncio.timeout(SEND_LIMIT_S):
            await self._websocket.send_text(text)

    async def _read(self) -> _End:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            text = message.get("text")
            if text is None:
                return _End(_AGAINST_POLICY, "Only text frames are read.")
            if len(text.encode()) > MAX_FRAME_BYTES:
                return _End(_TOO_LARGE, f"A frame has {MAX_FRAME_BYTES} bytes at most.")
            try:
                frame = _FRAMES.validate_json(text)
            except ValidationError:
                return _End(_AGAINST_POLICY, "This frame is not known: see docs/protocol.md.")
            if isinstance(frame, PingFrame):
                await self._send({"type": "pong"})
            else:
                self._watch.show(frame.conversation_id)
