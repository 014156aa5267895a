"""A chat's settings as they come from pages, files and the database."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine import InvalidParameterError
from ui.chat.settings import MAX_SYSTEM_PROMPT_CHARS, ChatSettings

LOW_ENDS: dict[str, Any] = {
    "system_prompt": "",
    "temperature": 0,
    "top_p": 0.01,
    "top_k": 0,
    "min_p": 0,
    "max_tokens": 1,
    "repetition_penalty": 0.5,
    "seed": None,
}
HIGH_ENDS: dict[str, Any] = {
    "system_prompt": "Be brief.",
    "temperature": 2,
    "top_p": 1,
    "top_k": 200,
    "min_p": 1,
    "max_tokens": 4096,
    "repetition_penalty": 2,
    "seed": 2**53,
}


def test_br_30_both_ends_of_every_slider_work() -> None:
    low = ChatSettings.from_json(LOW_ENDS).sampling()
    assert (low.temperature, low.top_p, low.top_k, low.min_p) == (0.0, 0.01, 0, 0.0)
    assert (low.max_tokens, low.repetition_penalty, low.seed) == (1, 0.5, None)
    assert low.is_greedy
    high = ChatSettings.from_json(HIGH_ENDS).sampling()
    assert (high.temperature, high.top_p, high.top_k, high.min_p) == (2.0, 1.0, 200, 1.0)
    assert (high.max_tokens, high.repetition_penalty, high.seed) == (4096, 2.0, 2**53)
    assert isinstance(high.temperature, float)
    assert isinstance(high.top_k, int)


@pytest.mark.parametrize("values", [{}, LOW_ENDS, HIGH_ENDS])
def test_settings_come_back_from_json_as_they_were(values: dict[str, Any]) -> None:
    settings = ChatSettings.from_json(values)
    text = json.dumps(settings.to_json())
    assert ChatSettings.from_json(json.loads(text)) == settings


def test_what_is_not_given_has_its_usual_value() -> None:
    assert ChatSettings.from_json({}) == ChatSettings()
    assert ChatSettings.from_json({"top_k": 40}) == ChatSettings(top_k=40)


def test_whole_numbers_may_be_written_as_real_ones() -> None:
    settings = ChatSettings.from_json({"max_tokens": 40.0, "seed": 3.0})
    assert settings == ChatSettings(max_tokens=40, seed=3)
    assert isinstance(settings.max_tokens, int)
    large = 2**62 + 1  # no real number is exactly this
    assert ChatSettings.from_json({"seed": large}).seed == large


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "0.7"),
        ("temperature", None),
        ("temperature", True),
        ("temperature", [0.7]),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", 10**400),
        ("top_p", 0),
        ("top_p", 1.01),
        ("min_p", -1),
        ("top_k", 1.5),
        ("top_k", -2),
        ("max_tokens", 0),
        ("max_tokens", None),
        ("max_tokens", "512"),
        ("max_tokens", 10**400),
        ("repetition_penalty", 0),
        ("seed", "1"),
        ("seed", 0.5),
        ("seed", 2**70),
        ("system_prompt", None),
        ("system_prompt", 5),
        ("system_prompt", ["Be kind."]),
        ("system_prompt", "x" * (MAX_SYSTEM_PROMPT_CHARS + 1)),
    ],
)
def test_br_28_a_wrong_value_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidParameterError) as refusal:
        ChatSettings.from_json({name: value})
    assert refusal.value.field == name
    assert str(refusal.value).startswith(name)
    assert len(str(refusal.value)) < 200


def test_unknown_settings_are_refused_or_passed_over() -> None:
    with pytest.raises(InvalidParameterError, match="no setting 'beam_width'"):
        ChatSettings.from_json({"top_k": 40, "beam_width": 4})
    passed = ChatSettings.from_json({"top_k": 40, "beam_width": 4}, ignore_unknown=True)
    assert passed == ChatSettings(top_k=40)


@pytest.mark.parametrize("value", [None, [], "settings", 7])
def test_settings_are_an_object(value: object) -> None:
    with pytest.raises(InvalidParameterError, match="object"):
        ChatSettings.from_json(value)


def test_a_system_prompt_is_mended_where_no_encoding_has_it() -> None:
    settings = ChatSettings.from_json({"system_prompt": "a\0b\ud800 \ud83d\ude00"})
    assert settings.system_prompt == "a\ufffdb\ufffd \U0001f600"


def test_a_value_out_of_range_is_refused_when_used() -> None:
    with pytest.raises(InvalidParameterError, match="temperature must be from 0 to 2, not 3"):
        ChatSettings(temperature=3).sampling()


def test_a_models_own_defaults_are_taken_where_there_is_a_control() -> None:
    defaults = {"temperature": 0.2, "top_k": 50.0, "presence_penalty": 1.0}
    assert ChatSettings().with_defaults_of(defaults) == ChatSettings(temperature=0.2, top_k=50)
