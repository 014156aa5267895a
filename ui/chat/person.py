"""Who a browser is: a signed cookie, and the rule that a Gradio session belongs to one person.

Gradio knows a browser only by a session hash that the browser chose. Here each hash is bound to the
person who uses it first; anybody else who sends it is refused before Gradio sees the call.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections import OrderedDict
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.chat.routes.errors import ChatApiError

CHAT_PREFIX = "/api/chat"
MAX_BODY_BYTES = 4 * 1024 * 1024
_COOKIE_MAX_AGE_S = 365 * 24 * 3600  # from the last visit
_GRADIO_PREFIX = "/gradio_api/"
_GRADIO_UPLOAD = "/gradio_api/upload"
_HASH_IN_PATH = re.compile(r"^/gradio_api/(?:heartbeat|stream)/([^/]+)")
_NO_COOKIE = "Your browser sent no valid cookie. Allow cookies for this page and reload it."


class PersonCookie:
    """Makes and checks the cookie's value: a random name and its signature.

    Cookies are shared by all ports of a host. The cookie's name comes from the secret, so that two
    servers with different data on one machine do not overwrite each other's.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.name = "hearth_person_" + self._signature("name")[:8]

    def issue(self) -> str:
        person = secrets.token_urlsafe(18)
        return f"{person}.{self._signature(person)}"

    def read(self, value: str | None) -> str | None:
        """The person in a cookie's value; None where it is missing or not ours."""
        person, separator, signature = (value or "").partition(".")
        if not separator or not signature.isascii():
            return None
        return person if hmac.compare_digest(signature, self._signature(person)) else None

    def value_in(self, headers: Headers) -> str | None:
        """The cookie's value as a request has it, unchecked.

        Read as browsers write them: whatever another server of this host has set beside it.
        """
        return cookie_parser(headers.get("cookie", "")).get(self.name)

    def person_in(self, headers: Headers) -> str | None:
        return self.read(self.value_in(headers))

    def _signature(self, person: str) -> str:
        return hmac.new(self._secret, person.encode(), hashlib.sha256).hexdigest()


class SessionOwners:
    """Which person a Gradio session hash belongs to; the least recently used are forgotten."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._person_by_session: OrderedDict[str, str] = OrderedDict()

    def claim(self, session_hash: str, person: str) -> bool:
        """Bind on first use. False: the session is another person's."""
        owner = self._person_by_session.setdefault(session_hash, person)
        self._person_by_session.move_to_end(session_hash)
        while len(self._person_by_session) > self._max_sessions:
            self._person_by_session.popitem(last=False)
        return owner == person


class PersonMiddleware:
    """Says who asks, and keeps Gradio sessions their person's own.

    `GET /` gives a browser its cookie, and renews it. The chat's calls and events (`/api/chat`) and
    Gradio's API are 401 without a valid one. The chat finds the person in `state["person"]`.
    """

    def __init__(self, app: ASGIApp, cookie: PersonCookie, max_sessions: int = 10_000) -> None:
        self._app = app
        self._cookie = cookie
        self._owners = SessionOwners(max_sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path_of(scope)
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif path == CHAT_PREFIX or path.startswith(f"{CHAT_PREFIX}/"):
            await self._for_chat(scope, receive, send)
        elif path == "/" and scope.get("method") == "GET":
            await self._app(scope, receive, _setting_cookie(scope, send, self._visit(scope)))
        elif path.startswith(_GRADIO_PREFIX):
            await self._for_gradio(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _visit(self, scope: Scope) -> str:
        """The cookie of who opens the page: its own for another year, or a new person's."""
        value = self._cookie.value_in(Headers(scope=scope))
        kept = value if value is not None and self._cookie.read(value) else self._cookie.issue()
        return f"{self._cookie.name}={kept}"

    async def _for_chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        person = self._cookie.person_in(Headers(scope=scope))
        if person is None:
            await ChatApiError(401, "no_cookie", _NO_COOKIE).response()(scope, receive, send)
            return
        state = {**scope.get("state", {}), "person": person}
        await self._app({**scope, "state": state}, receive, send)

    async def _for_gradio(self, scope: Scope, receive: Receive, send: Send) -> None:
        person = self._cookie.person_in(Headers(scope=scope))
        path = _path_of(scope)
        refusal: PlainTextResponse | None
        if person is None:
            refusal = PlainTextResponse(_NO_COOKIE, status_code=401)
        elif path.startswith(_GRADIO_UPLOAD):
            refusal = PlainTextResponse("Files are not taken here.", status_code=403)
        elif scope.get("method") == "POST":
            body = await _read_body(receive)
            refusal = self._refusal_of_body(scope, body, person)
            receive = _replay(body or b"", receive)
        else:
            refusal = self._refusal(_hash_in_url(scope, path), person)
        await (refusal or self._app)(scope, receive, send)

    def _refusal_of_body(
        self, scope: Scope, body: bytes | None, person: str
    ) -> PlainTextResponse | None:
        if body is None:
            return PlainTextResponse("The message is too large.", status_code=413)
        fields = _json_object(body)
        if fields is None:
            return PlainTextResponse("Only JSON is accepted here.", status_code=415)
        in_body, in_url = fields.get("session_hash"), _hash_in_url(scope, _path_of(scope))
        return self._refusal(in_url, person) or self._refusal(in_body, person)

    def _refusal(self, session_hash: object, person: str) -> PlainTextResponse | None:
        if session_hash is None or self._owners.claim(str(session_hash), person):
            return None
        return PlainTextResponse("This session belongs to another browser.", status_code=403)


def _path_of(scope: Scope) -> str:
    path: str = scope.get("path", "")
    return path.removeprefix(scope.get("root_path", ""))


def _hash_in_url(scope: Scope, path: str) -> str | None:
    in_path = _HASH_IN_PATH.match(path)
    if in_path:
        return str(in_path.group(1))
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return next(iter(query.get("session_hash", [])), None)


def _setting_cookie(scope: Scope, send: Send, cookie: str) -> Send:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    header = f"{cookie}; Path=/; Max-Age={_COOKIE_MAX_AGE_S}; HttpOnly; SameSite=Lax{secure}"

    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("set-cookie", header)
        await send(message)

    return send_with_cookie


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body; None where it is larger than allowed."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _json_object(body: bytes) -> dict[str, object] | None:
    try:
        fields = json.loads(body)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _replay(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again
