"""Bodies: what is read, and what is refused with the field named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine import InvalidParameterError
from ui.chat.room import OnFull
from ui.chat.routes.errors import install_chat_error_handlers
from ui.chat.routes.schemas import AskBody, AskIn, PatchBody, RegenerateBody
from ui.chat.settings import ChatSettings

ASK = {"conversation_id": None, "question_id": "q" * 16, "text": "Hi", "settings": {}}


def make_client() -> TestClient:
    app = FastAPI()
    install_chat_error_handlers(app)

    @app.post("/ask")
    async def ask(body: AskIn) -> str:
        body.chosen_settings()
        return body.text

    return TestClient(app)


def refusal(**changes: Any) -> dict[str, Any]:
    response = make_client().post("/ask", content=json.dumps({**ASK, **changes}).encode())
    assert response.status_code == 415
    response = make_client().post("/ask", json={**ASK, **changes})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_whole_question_is_read() -> None:
    body = AskBody.model_validate_json(
        json.dumps(
            {
                **ASK,
                "parent_id": "m1",
                "on_full": "drop",
                "settings": {"temperature": 0, "seed": 7, "max_tokens": 40.0},
            }
        )
    )
    assert body.chosen_settings() == ChatSettings(temperature=0.0, seed=7, max_tokens=40)
    assert (body.has_parent, body.parent_id) == (True, "m1")
    assert body.chosen_on_full() is OnFull.DROP


def test_no_parent_is_not_the_same_as_the_parent_null() -> None:
    assert not AskBody.model_validate(ASK).has_parent
    first = AskBody.model_validate({**ASK, "parent_id": None})
    assert (first.has_parent, first.parent_id) == (True, None)


def test_what_is_left_out_of_the_settings_has_its_usual_value() -> None:
    assert RegenerateBody.model_validate({"settings": {}}).chosen_settings() == ChatSettings()
    assert RegenerateBody.model_validate({"settings": {}}).chosen_on_full() is None


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"text": 5}, "text", "text must be a valid string."),
        ({"text": None}, "text", "text must be a valid string."),
        ({"conversation_id": 3}, "conversation_id", "conversation_id must be a valid string."),
        (
            {"conversation_id": ""},
            "conversation_id",
            "conversation_id must be of at least 1 character.",
        ),
        (
            {"conversation_id": "c" * 65},
            "conversation_id",
            "conversation_id must be of at most 64 characters.",
        ),
        (
            {"question_id": "short"},
            "question_id",
            "question_id must be 16 to 40 characters of A-Z, a-z, 0-9, - and _.",
        ),
        (
            {"question_id": "q" * 16 + "\n"},
            "question_id",
            "question_id must be 16 to 40 characters of A-Z, a-z, 0-9, - and _.",
        ),
        ({"on_full": "forget"}, "on_full", "on_full must be 'drop' or 'summarise'."),
        ({"words": 1}, "words", "words is not known here: leave it out."),
        ({"settings": None}, "settings", "settings must be an object."),
        ({"settings": [1]}, "settings", "settings must be an object."),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], field: str, message: str) -> None:
    error = refusal(**changes)
    assert (error["code"], error["field"], error["message"]) == ("invalid_value", field, message)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_p": None}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": "7"}, "seed"),
        ({"system_prompt": 7}, "system_prompt"),
        ({"system_prompt": "x" * 50_001}, "system_prompt"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], field: str) -> None:
    error = refusal(settings=settings)
    assert (error["code"], error["field"]) == ("invalid_value", field)
    assert error["message"].endswith(".")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(number: str) -> None:
    text = json.dumps({**ASK, "settings": {"temperature": 12345}}).replace("12345", number)
    headers = {"Content-Type": "application/json"}
    assert make_client().post("/ask", content=text, headers=headers).status_code == 400


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"text": "\\ud800"}'])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    response = make_client().post(
        "/ask", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b"null", b"7", b'"text"'])
def test_what_is_not_an_object_is_refused(body: bytes) -> None:
    response = make_client().post(
        "/ask", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("The body must be ")


@pytest.mark.parametrize("name", ["text", "settings", "question_id", "conversation_id"])
def test_what_is_missing_is_named(name: str) -> None:
    body = {key: value for key, value in ASK.items() if key != name}
    error = make_client().post("/ask", json=body).json()["error"]
    assert (error["field"], error["message"]) == (name, f"{name} is missing.")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
def test_types_that_any_page_may_send_are_refused(content_type: str) -> None:
    headers = {"Content-Type": content_type}
    response = make_client().post("/ask", content=json.dumps(ASK).encode(), headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "wrong_type"


def test_a_json_type_may_have_parameters() -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    response = make_client().post("/ask", content=json.dumps(ASK).encode(), headers=headers)
    assert response.json() == "Hi"


def test_a_patch_says_what_changes() -> None:
    body = PatchBody.model_validate({"is_pinned": False})
    assert (body.title, body.is_pinned, body.is_archived) == (None, False, None)


def test_settings_out_of_range_raise_with_the_field() -> None:
    with pytest.raises(InvalidParameterError) as refused:
        RegenerateBody.model_validate({"settings": {"top_p": 2}}).chosen_settings()
    assert refused.value.field == "top_p"
