"""Asking, and everything that can be done with a message."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from ui.chat.conversations import Conversations
from ui.chat.routes.caller import PersonIn
from ui.chat.routes.schemas import AskIn, ContinueIn, CountIn, EditIn, RegenerateIn
from ui.chat.storage.store import UNSET


def messages_router(conversations: Conversations) -> APIRouter:
    router = APIRouter()

    @router.post("/ask")
    async def ask(person: PersonIn, body: AskIn) -> dict[str, Any]:
        return await conversations.ask(
            person,
            conversation_id=body.conversation_id,
            parent_id=body.parent_id if body.has_parent else UNSET,
            question_id=body.question_id,
            text=body.text,
            settings=body.chosen_settings(),
            on_full=body.chosen_on_full(),
        )

    @router.post("/messages/{message_id}/regenerate")
    async def regenerate(person: PersonIn, message_id: str, body: RegenerateIn) -> dict[str, Any]:
        return await conversations.regenerate(
            person,
            message_id,
            settings=body.chosen_settings(),
            on_full=body.chosen_on_full(),
        )

    @router.post("/messages/{message_id}/continue")
    async def continue_answer(
        person: PersonIn, message_id: str, body: ContinueIn
    ) -> dict[str, Any]:
        settings = body.chosen_settings()
        return await conversations.continue_answer(person, message_id, settings=settings)

    @router.post("/messages/{message_id}/edit")
    async def edit(person: PersonIn, message_id: str, body: EditIn) -> dict[str, Any]:
        return await conversations.edit(person, message_id, body.text)

    @router.post("/messages/{message_id}/select")
    async def select(person: PersonIn, message_id: str) -> dict[str, Any]:
        return await conversations.select(person, message_id)

    @router.delete("/messages/{message_id}")
    async def delete(person: PersonIn, message_id: str) -> dict[str, Any]:
        return await conversations.delete_message(person, message_id)

    @router.post("/messages/{message_id}/restore")
    async def restore(person: PersonIn, message_id: str) -> dict[str, Any]:
        return await conversations.restore_message(person, message_id)

    @router.post("/count")
    async def count(person: PersonIn, body: CountIn) -> dict[str, Any]:
        return await conversations.count(
            person,
            conversation_id=body.conversation_id,
            text=body.text,
            settings=body.chosen_settings(),
        )

    return router
