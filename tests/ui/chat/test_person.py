"""The cookie, who is let through with it, and Gradio sessions that stay their person's."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI, Request, WebSocket
from fastapi.testclient import TestClient
from starlette.datastructures import Headers
from starlette.testclient import WebSocketDenialResponse

from ui.chat.person import MAX_BODY_BYTES, PersonCookie, PersonMiddleware, SessionOwners

COOKIE = PersonCookie(b"secret")


def make_client(value: str | None = None) -> TestClient:
    return TestClient(make_app(), cookies={COOKIE.name: value} if value else None)


def make_app() -> FastAPI:
    app = FastAPI()

    async def who(request: Request) -> dict[str, str | None]:
        body = (await request.body()).decode()
        return {"person": getattr(request.state, "person", None), "body": body}

    async def events(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_json(websocket.state.person)
        await websocket.close()

    for path in ("/", "/v1/models", "/api/chat/conversations", "/gradio_api/{rest:path}"):
        app.add_api_route(path, who, methods=["GET", "POST"])
    app.add_api_websocket_route("/api/chat/events", events)
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


def test_a_name_with_the_signature_of_another_is_nobody() -> None:
    _, _, signature = COOKIE.issue().partition(".")
    assert COOKIE.read(f"alice.{signature}") is None


def test_the_same_secret_reads_what_an_earlier_server_issued() -> None:
    value = COOKIE.issue()
    assert PersonCookie(b"secret").read(value) == value.partition(".")[0]
    assert PersonCookie(b"secret").name == COOKIE.name


def test_servers_with_other_data_neither_read_nor_overwrite_each_others_cookies() -> None:
    other = PersonCookie(b"other")
    assert other.read(COOKIE.issue()) is None
    assert other.name != COOKIE.name


@pytest.mark.parametrize(
    "beside", ['lab={"a": 1}', "[odd]=1", "flag", "x=ü", 'quoted="a b"', "$Version=1", "a=b=c"]
)
def test_odd_cookies_of_other_servers_on_this_host_do_not_hide_ours(beside: str) -> None:
    value = COOKIE.issue()
    for text in (f"{beside}; {COOKIE.name}={value}", f"{COOKIE.name}={value}; {beside}"):
        headers = Headers(raw=[(b"cookie", text.encode("latin-1"))])
        assert COOKIE.person_in(headers) == value.partition(".")[0]


def test_the_first_visit_gets_a_cookie_and_later_ones_renew_it() -> None:
    client = make_client()
    header = client.get("/").headers["set-cookie"]
    assert "HttpOnly" in header
    assert "SameSite=Lax" in header
    assert "Secure" not in header
    assert "Max-Age=31536000" in header
    value = client.cookies[COOKIE.name]
    assert COOKIE.read(value) is not None
    assert f"{COOKIE.name}={value};" in client.get("/").headers["set-cookie"]


def test_over_https_the_cookie_is_secure() -> None:
    client = TestClient(make_app(), base_url="https://testserver")
    assert "; Secure" in client.get("/").headers["set-cookie"]


@pytest.mark.parametrize("forged", ["alice", "alice.forged", PersonCookie(b"other").issue()])
def test_a_forged_cookie_is_nobody_until_the_page_replaces_it(forged: str) -> None:
    client = make_client(forged)
    assert client.get("/api/chat/conversations").status_code == 401
    assert client.get("/gradio_api/startup-events").status_code == 401
    header = client.get("/").headers["set-cookie"]
    assert COOKIE.read(header.partition(";")[0].partition("=")[2]) is not None


def test_only_opening_the_page_gives_a_cookie() -> None:
    for method, path in (
        ("GET", "/api/chat/conversations"),
        ("POST", "/api/chat/conversations"),
        ("GET", "/gradio_api/heartbeat/s1"),
        ("POST", "/gradio_api/queue/join"),
        ("GET", "/v1/models"),
        ("POST", "/"),
    ):
        assert "set-cookie" not in make_client().request(method, path, json={}).headers


def test_without_a_cookie_the_chat_says_what_to_do() -> None:
    response = make_client().get("/api/chat/conversations")
    assert response.status_code == 401
    assert response.headers["cache-control"] == "no-store"
    assert response.json() == {
        "error": {
            "code": "no_cookie",
            "message": "Your browser sent no valid cookie. Allow cookies for this page and reload "
            "it.",
        }
    }


def test_the_chat_gets_the_person_with_calls_and_events() -> None:
    client = make_client(COOKIE.issue())
    person = client.cookies[COOKIE.name].partition(".")[0]
    assert person_in(client.get("/api/chat/conversations")) == person
    with client.websocket_connect("/api/chat/events") as events:
        assert events.receive_json() == person


def test_events_without_a_cookie_are_refused_before_they_are_accepted() -> None:
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        make_client().websocket_connect("/api/chat/events"),
    ):
        pass
    assert refused.value.status_code == 401
    assert refused.value.json()["error"]["code"] == "no_cookie"


def test_other_routes_are_left_alone() -> None:
    response = make_client(COOKIE.issue()).get("/v1/models")
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
    owner = TestClient(app, cookies={COOKIE.name: COOKIE.issue()})
    stranger = TestClient(app, cookies={COOKIE.name: COOKIE.issue()})
    assert owner.post("/gradio_api/queue/join", json={"session_hash": "s1"}).status_code == 200
    assert stranger.request(method, path, json=body).status_code == 403
    assert TestClient(app).request(method, path, json=body).status_code == 401
    assert owner.request(method, path, json=body).status_code == 200


def test_the_body_reaches_the_application_unchanged() -> None:
    client = make_client(COOKIE.issue())
    response = client.post("/gradio_api/queue/join", content=b'{ "session_hash":"s2" }')
    assert response.json()["body"] == '{ "session_hash":"s2" }'


@pytest.mark.parametrize("body", [b"", b"session_hash=s1", b"[1]", b"\xff"])
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    client = make_client(COOKIE.issue())
    assert client.post("/gradio_api/queue/join", content=body).status_code == 415


@pytest.mark.parametrize("path", ["/gradio_api/upload", "/gradio_api/upload_progress?upload_id=1"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nobody_can_upload(method: str, path: str) -> None:
    response = make_client(COOKIE.issue()).request(method, path, json={})
    assert response.status_code == 403


def test_a_body_above_the_bound_is_refused() -> None:
    client = make_client(COOKIE.issue())
    body = b'{"a":"' + b"x" * MAX_BODY_BYTES + b'"}'
    assert client.post("/gradio_api/queue/join", content=body).status_code == 413


def test_session_owners_forget_the_least_recently_used() -> None:
    owners = SessionOwners(max_sessions=2)
    assert owners.claim("a", "alice")
    assert owners.claim("b", "alice")
    assert owners.claim("a", "alice")
    assert owners.claim("c", "alice")
    assert not owners.claim("a", "bob")
    assert owners.claim("b", "bob")
