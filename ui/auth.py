"""The API key: who may use /v1 and /metrics. Without a key everybody who reaches the port may."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from fastapi import Request

from ui.api.errors import ApiError


def require_api_key(key: str | None) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses a request without `Authorization: Bearer <key>`."""

    async def check(request: Request) -> None:
        if key is None:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(token.strip().encode(), key.encode())
        if scheme.lower() != "bearer" or not matches:
            raise ApiError(
                401,
                "Send the server's API key as 'Authorization: Bearer ...'.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    return check
