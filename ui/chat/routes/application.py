"""The /api/chat application: its own, so that whatever fails below answers in one shape."""

from __future__ import annotations

import secrets

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.chat.conversations import Conversations
from ui.chat.routes.conversations import conversations_router
from ui.chat.routes.errors import install_chat_error_handlers
from ui.chat.routes.events import events_router
from ui.chat.routes.files import files_router
from ui.chat.routes.messages import messages_router
from ui.chat.routes.presets import presets_router
from ui.chat.storage.store import ConversationStore


def create_chat_app(
    *, conversations: Conversations, store: ConversationStore, max_import_bytes: int
) -> FastAPI:
    """Mount it at CHAT_PREFIX, behind PersonMiddleware."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    install_chat_error_handlers(app)
    app.add_middleware(NoStore)
    app.include_router(conversations_router(conversations))
    app.include_router(messages_router(conversations))
    app.include_router(presets_router(conversations))
    app.include_router(files_router(conversations, store, max_import_bytes))
    app.include_router(events_router(conversations, server_id=secrets.token_hex(8)))
    return app


def stop_taking_calls(app: FastAPI) -> None:
    """From now on calls are answered by 503, while what they would use is being closed."""
    app.state.is_stopping = True


class NoStore:
    """What people write stays out of every cache."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_uncached(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, send_uncached)
