"""Each call of docs/protocol.md reaches the service with its person, and only that."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse

from tests.fake_conversations import FakeConversations
from ui.chat.conversation import NotFoundError
from ui.chat.person import PersonCookie, PersonMiddleware
from ui.chat.room import OnFull
from ui.chat.routes.application import create_chat_app, stop_taking_calls
from ui.chat.settings import ChatSettings
from ui.chat.storage.store import UNSET

COOKIE = PersonCookie(b"secret")
ALICE = COOKIE.issue()
PERSON = ALICE.partition(".")[0]
QUESTION_ID = "0123456789abcdef"
HOT = {"settings": {"temperature": 1}}
HOT_SETTINGS = ChatSettings(temperature=1.0)


@pytest.fixture
def conversations() -> FakeConversations:
    return FakeConversations()


@pytest.fixture
def api(conversations: FakeConversations) -> FastAPI:
    return create_chat_app(
        conversations=conversations,  # type: ignore[arg-type]
        store=None,  # type: ignore[arg-type]
        max_import_bytes=1024,
    )


@pytest.fixture
def client(api: FastAPI) -> TestClient:
    app = FastAPI()
    app.mount("/api/chat", api)
    app.add_middleware(PersonMiddleware, cookie=COOKIE)
    return TestClient(app, cookies={COOKIE.name: ALICE})


@pytest.mark.parametrize(
    ("method", "path", "body", "name", "arguments", "options"),
    [
        ("GET", "/conversations", None, "entries", (), {"archived": False}),
        ("GET", "/conversations?archived=1", None, "entries", (), {"archived": True}),
        ("GET", "/search?q=red%20fox", None, "search", ("red fox",), {}),
        ("GET", "/conversations/c1", None, "conversation", ("c1",), {"before": None, "limit": 40}),
        (
            "GET",
            "/conversations/c1?before=m1&limit=5",
            None,
            "conversation",
            ("c1",),
            {"before": "m1", "limit": 5},
        ),
        (
            "PATCH",
            "/conversations/c1",
            {"title": "A", "is_pinned": True},
            "patch",
            ("c1",),
            {"title": "A", "is_pinned": True, "is_archived": None},
        ),
        ("DELETE", "/conversations/c1", None, "delete", ("c1",), {}),
        ("POST", "/conversations/c1/restore", None, "restore", ("c1",), {}),
        ("POST", "/conversations/c1/stop", None, "stop", ("c1",), {}),
        (
            "POST",
            "/ask",
            {"conversation_id": None, "question_id": QUESTION_ID, "text": "Hi", **HOT},
            "ask",
            (),
            {
                "conversation_id": None,
                "parent_id": UNSET,
                "question_id": QUESTION_ID,
                "text": "Hi",
                "settings": HOT_SETTINGS,
                "on_full": None,
            },
        ),
        (
            "POST",
            "/ask",
            {
                "conversation_id": "c1",
                "parent_id": None,
                "question_id": QUESTION_ID,
                "text": "Hi",
                "on_full": "summarise",
                **HOT,
            },
            "ask",
            (),
            {
                "conversation_id": "c1",
                "parent_id": None,
                "question_id": QUESTION_ID,
                "text": "Hi",
                "settings": HOT_SETTINGS,
                "on_full": OnFull.SUMMARISE,
            },
        ),
        (
            "POST",
            "/messages/m1/regenerate",
            {"on_full": "drop", **HOT},
            "regenerate",
            ("m1",),
            {"settings": HOT_SETTINGS, "on_full": OnFull.DROP},
        ),
        (
            "POST",
            "/messages/m1/continue",
            HOT,
            "continue_answer",
            ("m1",),
            {"settings": HOT_SETTINGS},
        ),
        ("POST", "/messages/m1/edit", {"text": "B"}, "edit", ("m1", "B"), {}),
        ("POST", "/messages/m1/select", None, "select", ("m1",), {}),
        ("DELETE", "/messages/m1", None, "delete_message", ("m1",), {}),
        ("POST", "/messages/m1/restore", None, "restore_message", ("m1",), {}),
        (
            "POST",
            "/count",
            {"conversation_id": "c1", "text": "Hi", **HOT},
            "count",
            (),
            {"conversation_id": "c1", "text": "Hi", "settings": HOT_SETTINGS},
        ),
        ("GET", "/presets", None, "presets", (), {}),
        ("PUT", "/presets/My%20own", HOT, "save_preset", ("My own", HOT_SETTINGS), {}),
        ("PUT", "/presets/a%2Fb%3F", HOT, "save_preset", ("a/b?", HOT_SETTINGS), {}),
        ("DELETE", "/presets/%E4%BD%A0%E5%A5%BD", None, "delete_preset", ("你好",), {}),
    ],
)
def test_a_call_reaches_the_service_with_its_person(
    client: TestClient,
    conversations: FakeConversations,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    name: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    conversations.answers[name] = {"said": "Grüße"}
    response = client.request(method, f"/api/chat{path}", json=body)
    assert (response.status_code, response.json()) == (200, {"said": "Grüße"})
    assert response.headers["cache-control"] == "no-store"
    assert conversations.calls == [(name, (PERSON, *arguments), options)]


def test_the_defaults_are_nobodys(client: TestClient, conversations: FakeConversations) -> None:
    conversations.answers["defaults"] = {"settings": {}}
    assert client.get("/api/chat/defaults").json() == {"settings": {}}
    assert conversations.calls == [("defaults", (), {})]


@pytest.mark.parametrize(
    "path",
    [
        "/conversations?archived=maybe",
        "/conversations/c1?limit=0",
        "/conversations/c1?limit=1001",
        "/conversations/c1?limit=x",
        "/search",
        "/search?q=" + "x" * 5000,
    ],
)
def test_wrong_values_in_the_address_are_400(
    client: TestClient, conversations: FakeConversations, path: str
) -> None:
    response = client.get(f"/api/chat{path}")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_value")
    assert conversations.calls == []


def test_refusals_of_the_service_are_told(
    client: TestClient, conversations: FakeConversations
) -> None:
    conversations.answers["conversation"] = NotFoundError("There is no such conversation.")
    response = client.get("/api/chat/conversations/c1")
    assert response.status_code == 404
    assert response.headers["cache-control"] == "no-store"
    assert response.json()["error"]["message"] == "There is no such conversation."


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nothing"), ("PUT", "/ask"), ("GET", "/conversations/")]
)
def test_what_is_not_there_is_said_in_the_chats_shape(
    client: TestClient, method: str, path: str
) -> None:
    response = client.request(method, f"/api/chat{path}")
    assert response.status_code in (404, 405)
    assert set(response.json()) == {"error"}
    assert response.headers["cache-control"] == "no-store"


def test_a_server_that_stops_says_so(
    client: TestClient, api: FastAPI, conversations: FakeConversations
) -> None:
    stop_taking_calls(api)
    response = client.get("/api/chat/conversations")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "stopping")
    assert response.headers["retry-after"] == "5"
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        client.websocket_connect("/api/chat/events", headers={"Origin": "http://testserver"}),
    ):
        pass
    assert refused.value.status_code == 503
    assert conversations.calls == conversations.watches == []


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_page_of_another_server_cannot_call(
    client: TestClient, conversations: FakeConversations, method: str
) -> None:
    path = {"POST": "/api/chat/conversations/c1/stop"}.get(method, "/api/chat/conversations/c1")
    response = client.request(method, path, headers={"Origin": "http://evil.example"})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "foreign_origin")
    assert conversations.calls == []
    own = client.request(method, path, headers={"Origin": "http://testserver"})
    assert own.status_code == 200
