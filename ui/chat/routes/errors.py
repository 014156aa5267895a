"""Every failure of the chat's calls in one shape: {"error": {"code", "message", ...}}."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine import (
    EngineDeadError,
    EngineNotReadyError,
    HearthError,
    QueueFullError,
    RequestError,
)
from ui.api.errors import RETRY_WHILE_LOADING_S, on_disconnect
from ui.chat.conversation import ChatError
from ui.chat.room import ContextFullError

_STATUS_OF_CODE: Mapping[str, int] = {  # of ChatErrors; any other is 400
    "not_found": 404,
    "conflict": 409,
    "context_full": 409,
    "limit": 409,
    "stopped": 409,
    "storage": 503,
    "stopping": 503,
}
_CODE_OF_STATUS: Mapping[int, str] = {
    404: "not_found",
    405: "wrong_method",
    413: "too_large",
    415: "wrong_type",
}
_log = logging.getLogger("hearth.chat")


class ChatApiError(Exception):
    """A refusal or failure with its HTTP status; `details` go into the error beside the message."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.headers = headers or {}

    def response(self) -> JSONResponse:
        error = {"code": self.code, "message": self.message, **self.details}
        headers = {**self.headers, "Cache-Control": "no-store"}
        return JSONResponse({"error": error}, self.status, headers=headers)


def chat_api_error_of(error: ChatError | HearthError) -> ChatApiError:
    """The HTTP meaning of what the chat or the engine refused."""
    message = str(error)
    if isinstance(error, ChatError):
        details = error.details if isinstance(error, ContextFullError) else {}
        status = _STATUS_OF_CODE.get(error.code, 400)
        return ChatApiError(status, error.code, message, **details)
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": str(error.retry_after_s)}
        return ChatApiError(429, "queue_full", message, headers=headers)
    if isinstance(error, RequestError):
        return ChatApiError(400, "invalid_value", message, field=error.field)
    if isinstance(error, EngineNotReadyError):
        headers = {"Retry-After": str(RETRY_WHILE_LOADING_S)}
        return ChatApiError(503, "not_ready", message, headers=headers)
    if isinstance(error, EngineDeadError):
        return ChatApiError(503, "dead", message)
    return ChatApiError(500, "failed", message)


def install_chat_error_handlers(app: FastAPI) -> None:
    """Answer in the chat's shape whatever is raised below this app."""
    app.add_exception_handler(ChatApiError, _on_chat_api_error)
    app.add_exception_handler(ChatError, _on_refusal)
    app.add_exception_handler(HearthError, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_wrong_query)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, on_disconnect)
    app.add_middleware(UnexpectedErrors)


async def _on_chat_api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ChatApiError)
    return error.response()


async def _on_refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ChatError | HearthError)
    return chat_api_error_of(error).response()


async def _on_wrong_query(request: Request, error: Exception) -> JSONResponse:
    """Only what is in the address comes here: bodies are read in schemas.py."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = str(first["loc"][-1])
    what = str(first["msg"]).removeprefix("Input should be ")
    message = f"{field} is missing." if first["type"] == "missing" else f"{field} must be {what}."
    return ChatApiError(400, "invalid_value", message, field=field).response()


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = _CODE_OF_STATUS.get(error.status_code, "refused")
    message = {
        404: f"There is no {request.url.path} here.",
        405: f"{request.url.path} does not take {request.method}.",
    }.get(error.status_code, error.detail)
    return ChatApiError(error.status_code, code, message, headers=error.headers).response()


class UnexpectedErrors:
    """A fault of ours becomes a 500 with a number, under which the log has its traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception:
            if is_begun or scope["type"] != "http":
                raise  # too late for an answer: the connection breaks, which the client sees
            number = secrets.token_hex(4)
            _log.exception("fault %s at %s %s", number, scope["method"], scope["path"])
            message = f"The server failed on this. Its log has the details under {number}."
            error = ChatApiError(500, "failed", message, fault=number)
            await error.response()(scope, receive, send)
