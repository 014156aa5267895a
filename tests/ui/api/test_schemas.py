"""The body of a chat completion: strict JSON types, every refusal names its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ui.api.errors import ApiError
from ui.api.schemas import parse_chat_completion

MESSAGES = [{"role": "user", "content": "Hi"}]


def refusal(raw: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_chat_completion(raw)
    return caught.value


def refusal_of(**fields: Any) -> ApiError:
    return refusal(json.dumps({"messages": MESSAGES, **fields}).encode())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "The body is not valid JSON: EOF while parsing a value at line 1 column 0."),
        (b'{"messages":', "The body is not valid JSON: EOF while parsing a value"),
        (b'\xff{"messages": []}', "The body is not valid JSON: "),
        (b'{"a":' * 500, "The body is not valid JSON: recursion limit exceeded"),
        (b'{"user": "\\ud83d", "messages": []}', "The body is not valid JSON: "),
    ],
)
def test_what_is_not_json_is_refused(raw: bytes, message: str) -> None:
    error = refusal(raw)
    assert (error.status, error.param, error.code) == (400, None, "invalid_json")
    assert error.message.startswith(message)


def test_a_body_that_is_no_object_is_refused() -> None:
    error = refusal(b"[1]")
    assert (error.message, error.param) == ("The body must be an object.", None)


def test_missing_messages_are_named() -> None:
    error = refusal(b"{}")
    assert (error.message, error.param) == ("messages is missing.", "messages")


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"temperature": "0.7"}, "temperature", "temperature must be a valid number."),
        ({"temperature": True}, "temperature", "temperature must be a valid number."),
        ({"temperature": float("nan")}, "temperature", "temperature must be a finite number."),
        ({"temperature": float("inf")}, "temperature", "temperature must be a finite number."),
        ({"seed": "100"}, "seed", "seed must be a valid integer."),
        ({"seed": 1.5}, "seed", "seed must be a valid integer."),
        ({"logit_bias": {"5": "x"}}, "logit_bias.5", "logit_bias.5 must be a valid number."),
        ({"stop_token_ids": ["a"]}, "stop_token_ids[0]", "stop_token_ids[0] must be"),
        ({"stream": "yes"}, "stream", "stream must be a valid boolean."),
        ({"user": 7}, "user", "user must be a valid string."),
        ({"messages": "Hi"}, "messages", "messages must be a valid array."),
        ({"messages": ["Hi"]}, "messages[0]", "messages[0] must be an object."),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role", "messages[0].role is missing."),
        (
            {"stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
            "stream_options.include_usage must be a valid boolean.",
        ),
    ],
)
def test_br_28_wrong_types_are_refused_by_name(
    fields: dict[str, Any], param: str, message: str
) -> None:
    error = refusal_of(**fields)
    assert (error.status, error.param) == (400, param)
    assert error.message.startswith(message)


@pytest.mark.parametrize("value", [3, [1], {"a": 1}])
def test_a_stop_that_is_no_text_is_refused(value: Any) -> None:
    error = refusal_of(stop=value)
    assert error.status == 400
    assert error.param is not None
    assert error.param.startswith("stop")


@pytest.mark.parametrize("value", ["5", 1.5])
def test_br_44_a_limit_that_is_no_whole_number_is_refused(value: Any) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        error = refusal_of(**{name: value})
        assert (error.status, error.param) == (400, name)


@pytest.mark.parametrize("n", [0, 2, -1, 10**6])
def test_br_28_only_one_answer_at_a_time(n: int) -> None:
    error = refusal_of(n=n)
    assert (error.status, error.param) == (400, "n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("structured_outputs", {"json": {}}),
        ("modalities", ["text", "audio"]),
        ("best_of", 2),
        ("echo", True),
        ("min_tokens", 4),
    ],
)
def test_what_would_change_the_answer_is_not_ignored(name: str, value: Any) -> None:
    error = refusal_of(**{name: value})
    assert (error.status, error.param, error.code) == (400, name, "unsupported_parameter")
    assert error.message == f"{name} is not supported here: leave it out."


def test_what_asks_for_nothing_is_accepted() -> None:
    fields = {
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "n": 1,
        "functions": None,
        "metadata": {"run": "7"},
        "store": True,
        "something_new": [1],
    }
    body = parse_chat_completion(json.dumps({"messages": MESSAGES, **fields}).encode())
    assert body.messages[0].content == "Hi"


def test_br_30_whole_numbers_are_numbers_and_null_is_not_given() -> None:
    raw = json.dumps({"messages": MESSAGES, "temperature": 1, "top_p": None, "stop": None}).encode()
    body = parse_chat_completion(raw)
    assert (body.temperature, body.top_p, body.stop) == (1.0, None, None)
