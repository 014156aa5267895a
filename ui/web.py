"""The web application: Hearth's own routes first, then the Gradio page at "/"."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import gradio as gr
from fastapi import FastAPI

from engine import ChatService, Engine, Monitor
from ui.api.errors import install_error_handlers
from ui.api.v1 import create_v1_app
from ui.chat.chats import ChatStore
from ui.chat.person import PersonCookie, PersonMiddleware
from ui.dashboard_stream import dashboard_router
from ui.health import health_router
from ui.layout import build_page
from ui.metrics import metrics_router
from ui.middleware import BodyLimit, SecurityHeaders
from ui.server_config import ServerConfig
from ui.theme import page_options

_STOP_LIMIT_S = 5.0
_STOP_POLL_S = 0.02


def create_web_app(*, engine: Engine, monitor: Monitor, config: ServerConfig) -> FastAPI:
    """Engine and monitor start and stop with the application."""
    chat = ChatService(engine)
    app = FastAPI(openapi_url=None, lifespan=_lifespan(engine, monitor))
    install_error_handlers(app)
    app.include_router(health_router(engine=engine, stall_timeout_s=config.health_stall_timeout_s))
    app.include_router(metrics_router(engine=engine, config=config))
    app.include_router(dashboard_router(engine, monitor))
    app.mount("/v1", create_v1_app(engine=engine, chat=chat, config=config))
    _mount_page(app, engine, chat, config)
    app.add_middleware(BodyLimit, max_bytes=config.max_request_bytes)
    app.add_middleware(SecurityHeaders)
    return app


def _mount_page(app: FastAPI, engine: Engine, chat: ChatService, config: ServerConfig) -> None:
    people = PersonCookie(secrets.token_bytes(32))
    page = build_page(engine=engine, chat=chat, chats=ChatStore(), people=people)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        app_kwargs={"openapi_url": None},
        run_history=False,
        enable_monitoring=False,
        show_error=False,
        max_file_size=config.max_request_bytes,
        ssr_mode=False,
        **page_options(),
    )
    app.add_middleware(PersonMiddleware, cookie=people)


def _lifespan(
    engine: Engine, monitor: Monitor
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        monitor.start()
        try:
            yield
        finally:
            await _stop_within(_STOP_LIMIT_S, monitor.stop, engine.stop)

    return lifespan


async def _stop_within(limit_s: float, *stops: Callable[[], None]) -> None:
    """Call all at once. What takes longer is left behind: a model that loads cannot be hurried."""
    threads = [threading.Thread(target=stop, daemon=True) for stop in stops]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s and any(thread.is_alive() for thread in threads):
        await asyncio.sleep(_STOP_POLL_S)
