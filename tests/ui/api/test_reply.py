"""Outputs of a request -> chunks and completions, asserted whole."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from engine import FinishReason, RequestOutput, TokenLogprob, TokenLogprobs, Usage
from ui.api.errors import ApiError
from ui.api.reply import Reply

EMOJI = "😀".encode()
BYTES_OF = {1: b"Hi", 2: EMOJI[:2], 3: EMOJI[2:]}
USAGE = Usage(num_prompt_tokens=3, num_cached_tokens=2, num_output_tokens=2)
HEAD = {"id": "chatcmpl-a", "created": 5, "model": "m"}
USAGE_JSON = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 2},
}


def make_reply(**options: bool) -> Reply:
    shown = {"with_logprobs": False, "with_token_ids": False, "with_usage": False, **options}
    return Reply(
        id="chatcmpl-a",
        created_s=5,
        model="m",
        prompt_token_ids=(7, 8, 9),
        token_bytes=BYTES_OF.__getitem__,
        **shown,
    )


def output(text: str = "", *token_ids: int, **fields: Any) -> RequestOutput:
    return RequestOutput(request_id="a", text=text, token_ids=token_ids, **fields)


def last(text: str = "", *token_ids: int, **fields: Any) -> RequestOutput:
    values = {"finish_reason": FinishReason.STOP, "usage": USAGE, **fields}
    return output(text, *token_ids, **values)


def chunks(reply: Reply, *outputs: RequestOutput) -> list[dict[str, Any]]:
    return [json.loads(chunk.json_text()) for o in outputs for chunk in reply.chunks(o)]


def completion(reply: Reply, *outputs: RequestOutput) -> dict[str, Any]:
    for item in outputs:
        reply.add(item)
    return dict(json.loads(reply.completion().json_text()))


def choice(delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **fields}


def test_a_stream_opens_with_the_role_and_ends_with_the_reason() -> None:
    events = chunks(make_reply(), output("Hel", 1), output(""), last("lo", 1))
    kind = {**HEAD, "object": "chat.completion.chunk"}
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    assert events == [
        {**kind, "choices": [opening]},
        {**kind, "choices": [choice({"content": "Hel"})]},
        {
            **kind,
            "choices": [choice({"content": "lo"}, finish_reason="stop", stop_reason=None)],
        },
    ]


def test_usage_comes_last_and_is_null_before() -> None:
    events = chunks(make_reply(with_usage=True), last("Hi", 1))
    assert [event["usage"] for event in events] == [None, None, USAGE_JSON]
    assert events[-1]["choices"] == []


def test_token_ids_are_streamed_also_while_their_text_is_held_back() -> None:
    events = chunks(make_reply(with_token_ids=True), output("", 2), last("😀", 3))
    assert events[0]["prompt_token_ids"] == [7, 8, 9]
    assert [event["choices"][0].get("token_ids") for event in events] == [None, [2], [3]]
    assert [event["choices"][0]["delta"]["content"] for event in events] == ["", "", "😀"]


def test_a_completion_joins_all_deltas() -> None:
    whole = completion(
        make_reply(with_token_ids=True), output("Hel", 1), last("lo", 1, stop_reason="x")
    )
    assert whole == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": "x",
                "token_ids": [1, 1],
            }
        ],
        "usage": USAGE_JSON,
        "prompt_token_ids": [7, 8, 9],
    }


def test_ids_nobody_asked_for_are_absent() -> None:
    whole = completion(make_reply(), last("Hi", 1))
    assert "prompt_token_ids" not in whole
    assert "token_ids" not in whole["choices"][0]


def test_br_50_logprobs_have_exact_bytes_and_no_infinity() -> None:
    pair = TokenLogprobs(TokenLogprob(2, -0.5), (TokenLogprob(2, -0.5), TokenLogprob(3, -math.inf)))
    reply = make_reply(with_logprobs=True)
    whole = completion(reply, output("", 2, logprobs=(pair,)), last("😀", 3))
    first = {"token": "�", "logprob": -0.5, "bytes": [0xF0, 0x9F]}
    second = {"token": "��", "logprob": -9999.0, "bytes": [0x98, 0x80]}
    assert whole["choices"][0]["logprobs"] == {
        "content": [{**first, "top_logprobs": [first, second]}]
    }


@pytest.mark.parametrize("method", ["chunks", "add"])
def test_a_failed_request_is_an_error_with_the_engines_words(method: str) -> None:
    failed = output(finish_reason=FinishReason.ERROR, error="The numbers went wrong.")
    with pytest.raises(ApiError) as caught:
        getattr(make_reply(), method)(failed)
    assert (caught.value.status, caught.value.message) == (500, "The numbers went wrong.")


def test_an_aborted_request_is_an_error_too() -> None:
    with pytest.raises(ApiError) as caught:
        make_reply().add(output(finish_reason=FinishReason.ABORT))
    assert (caught.value.status, caught.value.code) == (503, "request_aborted")
