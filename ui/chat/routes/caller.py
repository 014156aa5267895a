"""Who calls: the person that PersonMiddleware found in the cookie, and whether it is our page."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends
from starlette.requests import HTTPConnection

from ui.chat.routes.errors import ChatApiError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_RETRY_AFTER_STOP_S = 5
_FOREIGN = (
    "This call came from a page of {origin}, not of this server ({host}). Behind a proxy, let it "
    "pass the Host header on."
)


def person_of(connection: HTTPConnection) -> str:
    """The person who calls.

    Raises:
        ChatApiError: 401, there is none. 403, a page of another server makes the browser call.
            503, the server is stopping.
    """
    person = getattr(connection.state, "person", None)
    if person is None:
        raise ChatApiError(401, "no_cookie", "Open the page first: it sets the cookie.")
    origin = connection.headers.get("origin")
    if origin is not None and not is_same_origin(origin, connection.headers.get("host", "")):
        raise foreign_origin(connection)
    if getattr(connection.app.state, "is_stopping", False):
        headers = {"Retry-After": str(_RETRY_AFTER_STOP_S)}
        message = "The server is stopping: try again when it is back."
        raise ChatApiError(503, "stopping", message, headers=headers)
    return str(person)


def foreign_origin(connection: HTTPConnection) -> ChatApiError:
    origin = connection.headers.get("origin", "no known server")[:200]
    message = _FOREIGN.format(origin=origin, host=connection.headers.get("host", "")[:200])
    return ChatApiError(403, "foreign_origin", message)


def is_same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names the server that the Host header names."""
    try:
        page, called = urlsplit(origin), urlsplit(f"//{host}")
        default = _DEFAULT_PORTS.get(page.scheme)
        page_address = (page.hostname, page.port or default)
        called_address = (called.hostname, called.port or default)
    except ValueError:  # a port that is no number
        return False
    return default is not None and page.hostname is not None and page_address == called_address


PersonIn = Annotated[str, Depends(person_of)]
