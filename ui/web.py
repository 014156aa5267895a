"""The web application: Hearth's own routes first, then the Gradio page at "/"."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import gradio as gr
from fastapi import FastAPI

from engine import ChatService, Engine, Monitor
from ui.api.errors import install_error_handlers
from ui.api.v1 import create_v1_app
from ui.chat.config import ChatConfig
from ui.chat.conversations import Conversations
from ui.chat.person import CHAT_PREFIX, PersonCookie, PersonMiddleware
from ui.chat.routes.application import create_chat_app, stop_taking_calls
from ui.chat.storage.database import open_database
from ui.chat.storage.store import ConversationLimits, ConversationStore
from ui.dashboard_stream import dashboard_router
from ui.health import health_router
from ui.layout import build_page
from ui.metrics import metrics_router
from ui.middleware import BodyLimit, SecurityHeaders
from ui.page_assets import mount_page_assets
from ui.server_config import ServerConfig
from ui.theme import page_options

_STOP_LIMIT_S = 5.0
_STOP_POLL_S = 0.02
_IMPORT_PATH = f"{CHAT_PREFIX}/import"


def create_web_app(
    *,
    engine: Engine,
    monitor: Monitor,
    config: ServerConfig,
    chat_config: ChatConfig | None = None,
) -> FastAPI:
    """Opens the database; engine, monitor and conversations start and stop with the application.

    Raises:
        ConfigError: the data directory cannot be used.
    """
    database = open_database(config.data_path)
    store = ConversationStore(database, ConversationLimits(), time.time)
    chat = ChatService(engine)
    conversations = Conversations(engine, chat, store, config=chat_config or ChatConfig())
    chat_app = create_chat_app(
        conversations=conversations, store=store, max_import_bytes=config.max_import_bytes
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as ending:  # runs backwards
            ending.callback(database.close)
            ending.push_async_callback(_stop_within, _STOP_LIMIT_S, monitor.stop, engine.stop)
            engine.start()
            monitor.start()
            ending.push_async_callback(conversations.close)  # keeps what is written so far
            await conversations.start()
            ending.callback(stop_taking_calls, chat_app)
            yield

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    install_error_handlers(app)
    app.include_router(health_router(engine=engine, stall_timeout_s=config.health_stall_timeout_s))
    app.include_router(metrics_router(engine=engine, config=config))
    app.include_router(dashboard_router(engine, monitor))
    app.mount("/v1", create_v1_app(engine=engine, chat=chat, config=config))
    app.mount(CHAT_PREFIX, chat_app)
    mount_page_assets(app)
    _mount_page(app, config)
    app.add_middleware(PersonMiddleware, cookie=PersonCookie(database.secret("cookie")))
    app.add_middleware(
        BodyLimit,
        max_bytes=config.max_request_bytes,
        max_bytes_of_path={_IMPORT_PATH: config.max_import_bytes},
    )
    app.add_middleware(SecurityHeaders)
    return app


def _mount_page(app: FastAPI, config: ServerConfig) -> None:
    gr.mount_gradio_app(
        app,
        build_page(),
        path="/",
        app_kwargs={"openapi_url": None},
        run_history=False,
        enable_monitoring=False,
        show_error=False,
        max_file_size=config.max_request_bytes,
        ssr_mode=False,
        **page_options(),
    )


async def _stop_within(limit_s: float, *stops: Callable[[], None]) -> None:
    """Call all at once. What takes longer is left behind: a model that loads cannot be hurried."""
    threads = [threading.Thread(target=stop, daemon=True) for stop in stops]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s and any(thread.is_alive() for thread in threads):
        await asyncio.sleep(_STOP_POLL_S)
