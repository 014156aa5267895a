"""What every answer carries and every request is bounded by. Plain ASGI: streams pass untouched."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.api.errors import ApiError
from ui.chat.person import CHAT_PREFIX
from ui.chat.routes.errors import ChatApiError

# Gradio's page needs inline scripts, inline styles and compiled templates; a reply of the model or
# a document must not make the browser fetch or post anything elsewhere.
_CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' blob: data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
_SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class SecurityHeaders:
    """Adds the security headers; tells proxies not to hold event streams back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if headers.get("content-type", "").startswith("text/event-stream"):
                    headers["X-Accel-Buffering"] = "no"
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _BodyTooLargeError(HTTPException):
    """Applications answer it like any HTTPException."""


class BodyLimit:
    """Refuses a request body above the limit with 413, by its announced or its real size.

    `max_bytes_of_path` has the paths that may take more than the others, or less.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_bytes_of_path: Mapping[str, int] | None = None
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_bytes_of_path = dict(max_bytes_of_path or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        max_bytes = self._max_bytes_of_path.get(scope["path"], self._max_bytes)
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced) > max_bytes:
            await _refusal(scope, max_bytes)(scope, receive, send)
            return
        try:
            await self._app(scope, _counted(receive, max_bytes), send)
        except _BodyTooLargeError:  # read outside of an application that answers by itself
            await _refusal(scope, max_bytes)(scope, receive, send)


def _counted(receive: Receive, max_bytes: int) -> Receive:
    num_bytes = 0

    async def receive_within_limit() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise _BodyTooLargeError(413, _too_large(max_bytes))
        return message

    return receive_within_limit


def _refusal(scope: Scope, max_bytes: int) -> Response:
    """In the shape of the application that would have answered."""
    if scope["path"].startswith(f"{CHAT_PREFIX}/"):
        return ChatApiError(413, "too_large", _too_large(max_bytes)).response()
    return ApiError(413, _too_large(max_bytes)).response()


def _too_large(max_bytes: int) -> str:
    return f"The request is larger than {max_bytes} bytes: send less at once."
