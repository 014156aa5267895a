"""What the engine raises, as HTTP."""

from __future__ import annotations

import pytest

from engine import (
    ContextLengthError,
    EngineDeadError,
    EngineNotReadyError,
    HearthError,
    InvalidParameterError,
    QueueFullError,
)
from ui.api.errors import api_error_of, internal_error


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (
            InvalidParameterError("No.", "top_p"),
            400,
            "invalid_request_error",
            "top_p",
            "invalid_value",
        ),
        (
            ContextLengthError("No.", "max_tokens"),
            400,
            "invalid_request_error",
            "max_tokens",
            "context_length_exceeded",
        ),
        (
            ContextLengthError("No."),
            400,
            "invalid_request_error",
            "messages",
            "context_length_exceeded",
        ),
        (QueueFullError("No.", 7), 429, "rate_limit_error", None, "queue_full"),
        (EngineNotReadyError("No."), 503, "service_unavailable_error", None, "model_loading"),
        (EngineDeadError("No."), 503, "service_unavailable_error", None, "engine_dead"),
        (HearthError("No."), 500, "server_error", None, None),
    ],
)
def test_each_error_has_its_status_and_shape(
    error: HearthError, status: int, kind: str, param: str | None, code: str | None
) -> None:
    converted = api_error_of(error)
    assert converted.status == status
    assert converted.body() == {
        "error": {"message": "No.", "type": kind, "param": param, "code": code}
    }


def test_clients_are_told_when_to_come_back() -> None:
    full = api_error_of(QueueFullError("No.", 7)).response()
    loading = api_error_of(EngineNotReadyError("No.")).response()
    assert (full.headers["retry-after"], loading.headers["retry-after"]) == ("7", "5")
    assert "retry-after" not in api_error_of(EngineDeadError("No.")).response().headers


def test_a_fault_of_ours_says_nothing_of_itself() -> None:
    assert internal_error().status == 500
