"""The /v1 application: its own, so that whatever fails below /v1 answers in OpenAI's shape."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from engine import ChatService, Engine
from ui.api.chat_completions import chat_completions_router
from ui.api.errors import install_error_handlers
from ui.api.models import models_router
from ui.auth import require_api_key
from ui.server_config import ServerConfig


def create_v1_app(*, engine: Engine, chat: ChatService, config: ServerConfig) -> FastAPI:
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(require_api_key(config.api_key))],
    )
    install_error_handlers(app)
    app.include_router(chat_completions_router(engine=engine, chat=chat, config=config))
    app.include_router(models_router(engine=engine, config=config))
    return app
