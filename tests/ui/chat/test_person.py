"""The cookie, and Gradio sessions that stay their person's."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from ui.chat.person import (
    COOKIE_NAME,
    MAX_BODY_BYTES,
    PersonCookie,
    PersonMiddleware,
    SessionOwners,
)

COOKIE = PersonCookie(b"secret")


def make_client(cookie: str | None = None) -> TestClient:
    return TestClient(make_app(), cookies={COOKIE_NAME: cookie} if cookie else None)


def make_app() -> FastAPI:
    app = FastAPI()

    async def who(request: Request) -> dict[str, str | None]:
        body = (await request.body()).decode()
        return {"person": COOKIE.person_of(request.cookies), "body": body}

    for path in ("/", "/v1/models", "/gradio_api/{rest:path}"):
        app.add_api_route(path, who, methods=["GET", "POST"])
    app.add_middleware(PersonMiddleware, cookie=COOKIE)
    return app


def person_in(response: httpx.Response) -> str:
    return str(response.json()["person"])


def test_a_cookie_that_was_issued_is_read_back() -> None:
    value = COOKIE.issue()
    assert COOKIE.read(value) == value.partition(".")[0]


@pytest.mark.parametrize("value", [None, "", ".", "alice", "alice.", "alice.0", "alice.é", "a.b.c"])
def test_a_cookie_that_was_not_issued_is_nobody(value: str | None) -> None:
    assert COOKIE.read(value) is None


def test_another_servers_cookie_is_nobody() -> None:
    assert COOKIE.read(PersonCookie(b"other").issue()) is None


def test_the_first_visit_gets_a_cookie_and_is_known_in_the_same_request() -> None:
    client = make_client()
    first = client.get("/")
    assert COOKIE.read(client.cookies[COOKIE_NAME]) == person_in(first)
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "SameSite=Lax" in first.headers["set-cookie"]
    assert "Secure" not in first.headers["set-cookie"]
    again = client.get("/")
    assert person_in(again) == person_in(first)
    assert "set-cookie" not in again.headers


def test_over_https_the_cookie_is_secure() -> None:
    client = TestClient(make_app(), base_url="https://testserver")
    assert "; Secure" in client.get("/").headers["set-cookie"]


def test_a_forged_cookie_is_replaced() -> None:
    response = make_client("alice.forged").get("/")
    assert person_in(response) not in ("alice", "None")
    assert "set-cookie" in response.headers


def test_other_routes_are_left_alone() -> None:
    response = make_client().get("/v1/models")
    assert "set-cookie" not in response.headers
    assert response.json()["person"] is None


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/gradio_api/queue/data?session_hash=s1", None),
        ("GET", "/gradio_api/heartbeat/s1", None),
        ("GET", "/gradio_api/stream/s1/0/1/playlist-file", None),
        ("POST", "/gradio_api/queue/join", {"session_hash": "s1"}),
        ("POST", "/gradio_api/cancel", {"session_hash": "s1", "fn_index": 0, "event_id": "x"}),
        ("POST", "/gradio_api/run/predict?session_hash=s1", {"data": []}),
    ],
)
def test_br_59_a_session_of_somebody_else_is_refused(
    method: str, path: str, body: dict[str, object] | None
) -> None:
    app = make_app()
    owner = TestClient(app, cookies={COOKIE_NAME: COOKIE.issue()})
    stranger = TestClient(app, cookies={COOKIE_NAME: COOKIE.issue()})
    assert owner.post("/gradio_api/queue/join", json={"session_hash": "s1"}).status_code == 200
    assert stranger.request(method, path, json=body).status_code == 403
    assert TestClient(app).request(method, path, json=body).status_code == 403
    assert owner.request(method, path, json=body).status_code == 200


def test_the_body_reaches_the_application_unchanged() -> None:
    response = make_client().post("/gradio_api/queue/join", content=b'{ "session_hash":"s2" }')
    assert response.json()["body"] == '{ "session_hash":"s2" }'


@pytest.mark.parametrize("body", [b"", b"session_hash=s1", b"[1]", b"\xff"])
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    assert make_client().post("/gradio_api/upload", content=body).status_code == 415


def test_a_body_above_the_bound_is_refused() -> None:
    body = b'{"a":"' + b"x" * MAX_BODY_BYTES + b'"}'
    assert make_client().post("/gradio_api/queue/join", content=body).status_code == 413


def test_session_owners_forget_the_least_recently_used() -> None:
    owners = SessionOwners(max_sessions=2)
    assert owners.claim("a", "alice")
    assert owners.claim("b", "alice")
    assert owners.claim("a", "alice")
    assert owners.claim("c", "alice")
    assert not owners.claim("a", "bob")
    assert owners.claim("b", "bob")
