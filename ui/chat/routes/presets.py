"""Saved settings, and those that a new conversation starts with."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from ui.chat.conversations import Conversations
from ui.chat.routes.caller import PersonIn
from ui.chat.routes.schemas import PresetIn


def presets_router(conversations: Conversations) -> APIRouter:
    router = APIRouter()

    @router.get("/presets")
    async def presets(person: PersonIn) -> dict[str, Any]:
        return await conversations.presets(person)

    @router.put("/presets/{name:path}")
    async def save(person: PersonIn, name: str, body: PresetIn) -> dict[str, Any]:
        return await conversations.save_preset(person, name, body.chosen_settings())

    @router.delete("/presets/{name:path}")
    async def delete(person: PersonIn, name: str) -> dict[str, Any]:
        return await conversations.delete_preset(person, name)

    @router.get("/defaults")
    async def defaults(person: PersonIn) -> dict[str, Any]:
        return await conversations.defaults()

    return router
