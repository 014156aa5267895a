"""What every answer carries and every request is bounded by. Plain ASGI: streams pass untouched."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.api.errors import ApiError

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
    """Refuses a request body above the limit with 413, by its announced or its real size."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced) > self._max_bytes:
            await ApiError(413, self._message()).response()(scope, receive, send)
            return
        try:
            await self._app(scope, self._counted(receive), send)
        except _BodyTooLargeError:  # read outside of an application that answers by itself
            await ApiError(413, self._message()).response()(scope, receive, send)

    def _counted(self, receive: Receive) -> Receive:
        num_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise _BodyTooLargeError(413, self._message())
            return message

        return receive_within_limit

    def _message(self) -> str:
        return f"The request is larger than {self._max_bytes} bytes: send less at once."
