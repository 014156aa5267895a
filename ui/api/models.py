"""GET /v1/models: the one model that is served."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response

from engine import Engine, ModelInfo
from ui.api.errors import ApiError
from ui.api.responses import ModelCard, ModelList
from ui.server_config import ServerConfig


def served_name(config: ServerConfig, info: ModelInfo) -> str:
    return config.served_model_name or info.name


def models_router(*, engine: Engine, config: ServerConfig) -> APIRouter:
    router = APIRouter()
    created_s = int(time.time())

    def card() -> ModelCard:
        info = engine.model_info()
        return ModelCard(
            id=served_name(config, info),
            object="model",
            created=created_s,
            owned_by="hearth",
            root=info.name,
            parent=None,
            max_model_len=info.max_model_len,
        )

    @router.get("/models")
    async def list_models() -> Response:
        return _json(ModelList(object="list", data=[card()]).json_text())

    @router.get("/models/{name:path}")
    async def retrieve_model(name: str) -> Response:
        found = card()
        if name != found.id:
            message = f"There is no model {name!r} here: use {found.id!r}."
            raise ApiError(404, message, param="model", code="model_not_found")
        return _json(found.json_text())

    return router


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")
