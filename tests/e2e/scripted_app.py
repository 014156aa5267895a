"""The chat page as the real server mounts it, on a scripted one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import gradio as gr
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tests.e2e.scripted_frames import Json
from tests.e2e.scripted_server import Refusal, ScriptedServer
from ui.layout import build_page
from ui.middleware import SecurityHeaders
from ui.page_assets import mount_page_assets
from ui.theme import page_options


async def scripted_app(server: ScriptedServer) -> FastAPI:
    """Made in an event loop: outside of one Gradio makes its own and leaves them open."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        server.loop = asyncio.get_running_loop()
        yield

    app = FastAPI(lifespan=lifespan)
    mount_page_assets(app)
    _add_routes(app, server)
    gr.mount_gradio_app(
        app,
        build_page(),
        path="/",
        run_history=False,
        enable_monitoring=False,
        ssr_mode=False,
        **page_options(),
    )
    app.add_middleware(SecurityHeaders)
    return app


def _add_routes(app: FastAPI, server: ScriptedServer) -> None:
    app.add_api_websocket_route("/api/chat/events", server.listen)

    @app.post("/api/chat/import")
    async def take(request: Request) -> Json:
        server.imported.append(await request.body())
        return server.import_result

    @app.get("/api/chat/export")
    @app.get("/api/chat/conversations/{name}/export")
    async def export(request: Request, name: str = "all") -> Response:
        if not server.is_reachable:
            return Response("Bad gateway", 502)
        file_name = f"{name}.{request.query_params['format']}"
        headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
        return Response(b"exported", headers=headers)

    @app.api_route("/api/chat/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async def call(path: str, request: Request) -> Response:
        if not server.is_reachable:
            return Response("Bad gateway", 502)
        body = await request.json() if await request.body() else {}
        try:
            query = dict(request.query_params)
            return JSONResponse(await server.answer_call(request.method, path, query, body))
        except Refusal as refusal:
            return JSONResponse({"error": refusal.error}, refusal.status)
