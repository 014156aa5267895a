"""Body and model defaults -> SamplingParams."""

from __future__ import annotations

from typing import Any

import pytest

from engine import InvalidParameterError, SamplingParams
from ui.api.sampling import sampling_of
from ui.api.schemas import ChatCompletionBody, Message


def make_body(**fields: Any) -> ChatCompletionBody:
    return ChatCompletionBody(messages=[Message(role="user", content="Hi")], **fields)


def refused_field(**fields: Any) -> str | None:
    with pytest.raises(InvalidParameterError) as caught:
        sampling_of(make_body(**fields), {})
    return caught.value.field


def test_without_anything_the_defaults_are_openais() -> None:
    assert sampling_of(make_body(), {}) == SamplingParams()


def test_the_models_defaults_come_before_openais() -> None:
    defaults = {"temperature": 0.2, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.1}
    assert sampling_of(make_body(), defaults) == SamplingParams(
        temperature=0.2, top_k=50, top_p=0.9, repetition_penalty=1.1
    )


def test_the_body_comes_before_the_models_defaults() -> None:
    sampling = sampling_of(make_body(temperature=0.0, top_k=0), {"temperature": 0.2, "top_k": 50})
    assert (sampling.temperature, sampling.top_k) == (0.0, 0)


def test_every_field_arrives() -> None:
    body = make_body(
        max_tokens=5,
        temperature=0.5,
        top_k=3,
        top_p=0.8,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.4,
        seed=7,
        stop=["a", "b"],
        stop_token_ids=[9],
        ignore_eos=True,
        logit_bias={"5": -2},
        logprobs=True,
        top_logprobs=4,
    )
    assert sampling_of(body, {}) == SamplingParams(
        max_tokens=5,
        temperature=0.5,
        top_k=3,
        top_p=0.8,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.4,
        seed=7,
        stop=("a", "b"),
        stop_token_ids=(9,),
        ignore_eos=True,
        logit_bias={5: -2.0},
        logprobs=4,
    )


def test_a_stop_string_is_a_list_of_one() -> None:
    assert sampling_of(make_body(stop="four"), {}).stop == ("four",)


def test_br_44_the_alias_wins_over_max_tokens() -> None:
    assert sampling_of(make_body(max_completion_tokens=8), {}).max_tokens == 8
    assert sampling_of(make_body(max_completion_tokens=8, max_tokens=50), {}).max_tokens == 8
    assert sampling_of(make_body(max_tokens=50), {}).max_tokens == 50
    assert sampling_of(make_body(), {}).max_tokens is None


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_br_44_a_limit_below_one_is_refused_by_the_clients_name(name: str, value: int) -> None:
    assert refused_field(**{name: value}) == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("seed", 2**63),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("temperature", -1),
        ("temperature", 3),
        ("top_p", 0),
        ("top_p", 1.2),
        ("top_k", -2),
        ("min_p", 2),
        ("frequency_penalty", 100),
        ("presence_penalty", -2.5),
    ],
)
def test_br_28_values_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    assert refused_field(**{name: value}) == name


@pytest.mark.parametrize("bias", [{"-1": 5}, {"abc": 1}, {"5": 1e9}, {"1.5": 1}])
def test_br_29_a_bias_that_makes_no_sense_is_refused(bias: dict[str, float]) -> None:
    assert refused_field(logit_bias=bias) == "logit_bias"


def test_br_30_temperature_zero_is_greedy() -> None:
    assert sampling_of(make_body(temperature=0), {}).is_greedy


@pytest.mark.parametrize("num_top", [-1, 21])
def test_top_logprobs_are_bounded(num_top: int) -> None:
    assert refused_field(logprobs=True, top_logprobs=num_top) == "top_logprobs"


def test_top_logprobs_without_logprobs_are_refused() -> None:
    assert refused_field(top_logprobs=2) == "top_logprobs"
    assert sampling_of(make_body(logprobs=True), {}).logprobs == 0
    assert sampling_of(make_body(logprobs=False), {}).logprobs is None
