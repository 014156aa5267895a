"""/v1 without a model: who may use it, and every failure in OpenAI's shape."""

from __future__ import annotations

from typing import Any

import pytest
from httpx import Response
from starlette.testclient import TestClient

from engine import ChatService, EngineState, GenerationRequest, RequestStream
from tests.factories import make_engine_stats, make_model_info
from tests.fakes import IdleEngine
from ui.api.v1 import create_v1_app
from ui.server_config import ServerConfig

BODY = {"messages": [{"role": "user", "content": "Hi"}]}


def make_client(engine: IdleEngine | None = None, **settings: Any) -> TestClient:
    engine = engine or IdleEngine(stats=make_engine_stats(), info=make_model_info(name="tiny"))
    app = create_v1_app(engine=engine, chat=ChatService(engine), config=ServerConfig(**settings))
    return TestClient(app, raise_server_exceptions=False)


def error_of(response: Response) -> dict[str, Any]:
    body = response.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    return dict(body["error"], status=response.status_code)


def test_the_model_is_listed_with_its_context() -> None:
    listed = make_client(served_model_name="chat").get("/models").json()
    assert listed["object"] == "list"
    (card,) = listed["data"]
    assert (card["id"], card["root"], card["max_model_len"]) == ("chat", "tiny", 512)


def test_a_model_is_found_by_its_name() -> None:
    client = make_client(IdleEngine(info=make_model_info(name="a/b")))
    assert client.get("/models/a/b").json()["id"] == "a/b"
    error = error_of(client.get("/models/c"))
    assert (error["status"], error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/chat/completions", 405),
        ("DELETE", "/chat/completions", 405),
        ("POST", "/models", 405),
        ("GET", "/models/", 404),
    ],
)
def test_unknown_paths_and_methods_are_refused(method: str, path: str, status: int) -> None:
    error = error_of(make_client().request(method, path))
    assert (error["status"], error["type"]) == (status, "invalid_request_error")


def test_while_the_model_loads_clients_are_told_to_come_back() -> None:
    client = make_client(IdleEngine(EngineState.LOADING))
    for response in (client.post("/chat/completions", json=BODY), client.get("/models")):
        error = error_of(response)
        assert (error["status"], error["code"]) == (503, "model_loading")
        assert response.headers["retry-after"] == "5"


def test_another_model_is_not_found() -> None:
    error = error_of(make_client().post("/chat/completions", json={**BODY, "model": "gpt-9"}))
    assert error == {
        "status": 404,
        "message": "There is no model 'gpt-9' here: use 'tiny'.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


def test_only_json_is_taken() -> None:
    response = make_client().post(
        "/chat/completions", content="{}", headers={"Content-Type": "text/plain"}
    )
    assert error_of(response)["status"] == 415


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer ", 401),
        ("sesame", 401),
        ("Basic sesame", 401),
        ("Bearer s\u00e9same", 401),
        ("Bearer sesame", 200),
        ("bearer sesame", 200),
    ],
)
def test_with_an_api_key_v1_needs_it(header: str | None, status: int) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    response = make_client(api_key="sesame").get("/models", headers=headers)
    assert response.status_code == status
    if status == 401:
        assert error_of(response)["type"] == "authentication_error"
        assert response.headers["www-authenticate"] == "Bearer"


def test_without_a_key_everybody_may() -> None:
    assert make_client().get("/models").status_code == 200


class FailingEngine(IdleEngine):
    """Its model is there, but asking it for anything fails in a way nobody foresaw."""

    def model_info(self) -> Any:
        raise ZeroDivisionError("secret detail")

    def submit(self, request: GenerationRequest) -> RequestStream:
        raise ZeroDivisionError("secret detail")


def test_a_fault_of_ours_shows_no_details() -> None:
    error = error_of(make_client(FailingEngine()).post("/chat/completions", json=BODY))
    assert (error["status"], error["type"]) == (500, "server_error")
    assert error["message"] == "The server failed on this request; its log has the details."


@pytest.mark.parametrize(
    ("flags", "param"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
    ],
)
def test_br_47_contradictory_flags_are_refused(flags: dict[str, bool], param: str) -> None:
    error = error_of(make_client().post("/chat/completions", json={**BODY, **flags}))
    assert (error["status"], error["param"]) == (400, param)
