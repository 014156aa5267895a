"""What is refused or fails becomes a status and one shape."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect

from engine import (
    ContextLengthError,
    EngineDeadError,
    EngineNotReadyError,
    InvalidParameterError,
    ModelLoadError,
    QueueFullError,
)
from ui.chat.conversation import ChatError, ConflictError, LimitError, NotFoundError
from ui.chat.room import ContextFullError, OnFull
from ui.chat.routes.errors import ChatApiError, install_chat_error_handlers
from ui.chat.storage_threads import StoppingError, StorageError
from ui.chat.summaries import StoppedError


def make_client(error: Exception) -> TestClient:
    app = FastAPI(redirect_slashes=False)
    install_chat_error_handlers(app)

    @app.get("/call")
    async def call(limit: int = 0) -> None:
        raise error

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            yield b"first"
            raise error

        return StreamingResponse(parts())

    return TestClient(app)


def response_to(error: Exception) -> Any:
    return make_client(error).get("/call")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFoundError("No."), 404, "not_found"),
        (ConflictError("No."), 409, "conflict"),
        (LimitError("No."), 409, "limit"),
        (StorageError("No."), 503, "storage"),
        (StoppedError("No."), 409, "stopped"),
        (ChatError("No."), 400, "refused"),
        (QueueFullError("No.", 7), 429, "queue_full"),
        (EngineNotReadyError("No."), 503, "not_ready"),
        (EngineDeadError("No."), 503, "dead"),
        (ModelLoadError("No."), 500, "failed"),
        (InvalidParameterError("No.", "top_p"), 400, "invalid_value"),
        (ContextLengthError("No."), 400, "invalid_value"),
        (ChatApiError(418, "teapot", "No."), 418, "teapot"),
    ],
)
def test_each_refusal_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    response = response_to(error)
    body = response.json()["error"]
    assert (response.status_code, body["code"], body["message"]) == (status, code, "No.")
    assert response.headers["cache-control"] == "no-store"


def test_a_server_that_stops_is_503() -> None:
    response = response_to(StoppingError())
    assert (response.status_code, response.json()["error"]["code"]) == (503, "stopping")


def test_what_may_be_tried_again_says_when() -> None:
    assert response_to(QueueFullError("No.", 7)).headers["retry-after"] == "7"
    assert response_to(EngineNotReadyError("No.")).headers["retry-after"] == "5"


def test_the_field_at_fault_is_named() -> None:
    assert response_to(InvalidParameterError("No.", "top_p")).json()["error"]["field"] == "top_p"


def test_a_full_context_says_what_can_be_done() -> None:
    full = ContextFullError(used=4000, max_tokens=4096, choices=[OnFull.DROP], num_left_out=6)
    response = response_to(full)
    error = response.json()["error"]
    assert response.status_code == 409
    assert error == {
        "code": "context_full",
        "message": str(full),
        "used": 4000,
        "max": 4096,
        "choices": ["drop"],
        "num_left_out": 6,
    }


def test_a_fault_is_a_number_for_the_person_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        response = response_to(ZeroDivisionError("alice wrote a poem"))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (500, "failed")
    assert "poem" not in response.text
    assert "Traceback" not in response.text
    assert error["fault"] in error["message"]
    (record,) = [record for record in caplog.records if record.name == "hearth.chat"]
    assert error["fault"] in record.getMessage()
    assert record.exc_info is not None


def test_a_fault_after_the_answer_has_begun_breaks_it_off() -> None:
    client = make_client(ZeroDivisionError("late"))
    with pytest.raises(ZeroDivisionError):
        client.get("/stream")


def test_a_client_that_left_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    assert response_to(ClientDisconnect()).status_code == 499
    assert caplog.records == []


def test_what_does_not_exist_is_said_in_the_same_shape() -> None:
    client = make_client(ValueError())
    missing, wrong_method = client.get("/nothing"), client.delete("/call")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (wrong_method.status_code, wrong_method.json()["error"]["code"]) == (
        405,
        "wrong_method",
    )
    assert wrong_method.headers["allow"] == "GET"


def test_a_wrong_value_in_the_address_is_named() -> None:
    client = make_client(ValueError())
    response = client.get("/call?limit=many")
    assert response.status_code == 400
    assert response.json()["error"]["field"] == "limit"
    assert response.json()["error"]["message"].startswith("limit must be a valid integer")
