"""The list of conversations, one conversation, search, and Stop."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from ui.chat.conversations import Conversations
from ui.chat.routes.caller import PersonIn
from ui.chat.routes.schemas import PatchIn

MAX_SHOWN_MESSAGES = 200
_Limit = Annotated[int, Query(ge=1, le=MAX_SHOWN_MESSAGES)]
_Words = Annotated[str, Query(max_length=1000)]


def conversations_router(conversations: Conversations) -> APIRouter:
    router = APIRouter()

    @router.get("/conversations")
    async def entries(person: PersonIn, archived: bool = False) -> dict[str, Any]:
        return await conversations.entries(person, archived=archived)

    @router.get("/search")
    async def search(person: PersonIn, q: _Words) -> dict[str, Any]:
        return await conversations.search(person, q)

    @router.get("/conversations/{conversation_id}")
    async def conversation(
        person: PersonIn, conversation_id: str, before: str | None = None, limit: _Limit = 40
    ) -> dict[str, Any]:
        return await conversations.conversation(person, conversation_id, before=before, limit=limit)

    @router.patch("/conversations/{conversation_id}")
    async def patch(person: PersonIn, conversation_id: str, body: PatchIn) -> dict[str, Any]:
        return await conversations.patch(
            person,
            conversation_id,
            title=body.title,
            is_pinned=body.is_pinned,
            is_archived=body.is_archived,
        )

    @router.delete("/conversations/{conversation_id}")
    async def delete(person: PersonIn, conversation_id: str) -> dict[str, Any]:
        return await conversations.delete(person, conversation_id)

    @router.post("/conversations/{conversation_id}/restore")
    async def restore(person: PersonIn, conversation_id: str) -> dict[str, Any]:
        return await conversations.restore(person, conversation_id)

    @router.post("/conversations/{conversation_id}/stop")
    async def stop(person: PersonIn, conversation_id: str) -> dict[str, Any]:
        return await conversations.stop(person, conversation_id)

    return router
