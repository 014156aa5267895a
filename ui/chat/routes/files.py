"""Conversations as files: taken away as JSON or Markdown, and brought back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse

from ui.chat.conversations import Conversations
from ui.chat.exchange.export import (
    all_conversations,
    export_json,
    export_markdown,
    file_name,
    markdown_zip,
)
from ui.chat.exchange.importing import ImportLimits, import_file
from ui.chat.routes.caller import PersonIn
from ui.chat.routes.errors import ChatApiError
from ui.chat.routes.schemas import require_content_type
from ui.chat.storage.store import ConversationStore

MAX_IMPORTS = 4  # at a time, on the whole server: each holds its file in memory
_RETRY_IMPORT_S = 10
_JSON, _MARKDOWN, _ZIP = "application/json", "text/markdown; charset=utf-8", "application/zip"
_Format = Literal["json", "md"]


class ImportSlots:
    """Who is importing. A person imports one file at a time."""

    def __init__(self, max_imports: int = MAX_IMPORTS) -> None:
        self._max_imports = max_imports
        self._importing: set[str] = set()

    @contextlib.contextmanager
    def taken_by(self, person: str) -> Iterator[None]:
        """Raises ChatApiError: no slot is free."""
        if person in self._importing or len(self._importing) >= self._max_imports:
            headers = {"Retry-After": str(_RETRY_IMPORT_S)}
            message = "Another import is still running: try again when it is done."
            raise ChatApiError(429, "busy", message, headers=headers)
        self._importing.add(person)
        try:
            yield
        finally:
            self._importing.discard(person)


def files_router(
    conversations: Conversations, store: ConversationStore, max_import_bytes: int
) -> APIRouter:
    router = APIRouter()
    slots = ImportSlots()
    limits = ImportLimits(max_bytes=max_import_bytes)

    @router.get("/conversations/{conversation_id}/export")
    async def export_one(person: PersonIn, conversation_id: str, format: _Format) -> Response:
        conversation = await run_in_threadpool(store.whole_conversation, person, conversation_id)
        headers = attachment(file_name(conversation, format))
        if format == "md":
            text = await run_in_threadpool(export_markdown, conversation)
            return Response(text, media_type=_MARKDOWN, headers=headers)
        return StreamingResponse(export_json([conversation]), media_type=_JSON, headers=headers)

    @router.get("/export")
    async def export_all(person: PersonIn, format: _Format) -> Response:
        found = all_conversations(store, person)
        if format == "md":
            headers = attachment("Hearth conversations.zip")
            return StreamingResponse(markdown_zip(found), media_type=_ZIP, headers=headers)
        headers = attachment("Hearth conversations.json")
        return StreamingResponse(export_json(found), media_type=_JSON, headers=headers)

    @router.post("/import")
    async def import_conversations(person: PersonIn, request: Request) -> dict[str, Any]:
        require_content_type(request, "application/octet-stream")
        with slots.taken_by(person):
            content = await request.body()
            result = await asyncio.to_thread(import_file, person, content, store, limits)
        conversations.entries_changed(person)
        return result._asdict()

    return router


def attachment(name: str) -> dict[str, str]:
    """Headers for a file of this name, which may have any characters (RFC 6266)."""
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    quoted = plain.replace("\\", "_").replace('"', "_")
    value = f"attachment; filename=\"{quoted}\"; filename*=UTF-8''{quote(name, safe='')}"
    return {"Content-Disposition": value}
