"""Every failure of /v1 in OpenAI's shape: {"error": {message, type, param, code}}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from engine import (
    ContextLengthError,
    EngineDeadError,
    EngineNotReadyError,
    HearthError,
    QueueFullError,
    RequestError,
)

RETRY_WHILE_LOADING_S = 5
CLIENT_CLOSED_REQUEST = 499  # nginx's code; no client sees it
_INTERNAL_MESSAGE = "The server failed on this request; its log has the details."


class ApiError(Exception):
    """A refusal or failure with its HTTP status; `param` names the request field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, dict[str, str | None]]:
        return {
            "error": {
                "message": self.message,
                "type": _type_of(self.status),
                "param": self.param,
                "code": self.code,
            }
        }

    def json_text(self) -> str:
        return json.dumps(self.body())

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, headers=self.headers)


def api_error_of(error: HearthError) -> ApiError:
    """The HTTP meaning of what the engine raised."""
    message = str(error)
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": str(error.retry_after_s)}
        return ApiError(429, message, code="queue_full", headers=headers)
    if isinstance(error, ContextLengthError):
        param = error.field or "messages"
        return ApiError(400, message, param=param, code="context_length_exceeded")
    if isinstance(error, RequestError):
        return ApiError(400, message, param=error.field, code="invalid_value")
    if isinstance(error, EngineNotReadyError):
        headers = {"Retry-After": str(RETRY_WHILE_LOADING_S)}
        return ApiError(503, message, code="model_loading", headers=headers)
    if isinstance(error, EngineDeadError):
        return ApiError(503, message, code="engine_dead")
    return ApiError(500, message)


def install_error_handlers(app: FastAPI) -> None:
    """Answer in OpenAI's shape whatever is raised below this app."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HearthError, _on_hearth_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, on_disconnect)
    app.add_exception_handler(Exception, _on_unexpected)


def _type_of(status: int) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return "authentication_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return "invalid_request_error"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "service_unavailable_error"
    return "server_error"


async def _on_api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error.response()


async def _on_hearth_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HearthError)
    return api_error_of(error).response()


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND and message == HTTPStatus.NOT_FOUND.phrase:
        message = f"There is no {request.url.path} here."
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{request.url.path} does not take {request.method}."
    return ApiError(error.status_code, message, headers=error.headers).response()


async def on_disconnect(request: Request, error: Exception) -> Response:
    """The client left while it was still sending: nobody reads the answer, nothing went wrong."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _on_unexpected(request: Request, error: Exception) -> JSONResponse:
    return internal_error().response()


def internal_error() -> ApiError:
    """What a client may know of a fault of ours."""
    return ApiError(500, _INTERNAL_MESSAGE)
