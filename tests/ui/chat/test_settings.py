"""A chat's settings as the controls deliver them."""

from __future__ import annotations

import pytest

from engine import InvalidParameterError
from ui.chat.settings import ChatSettings

LOW_ENDS = ("", 0, 0.01, 0, 0, 1, 0.5, None)
HIGH_ENDS = ("Be brief.", 2, 1, 200, 1, 4096, 2, 2**53)


def test_br_30_both_ends_of_every_slider_work() -> None:
    low = ChatSettings.from_controls(*LOW_ENDS).sampling()
    assert (low.temperature, low.top_p, low.top_k, low.min_p) == (0.0, 0.01, 0, 0.0)
    assert (low.max_tokens, low.repetition_penalty, low.seed) == (1, 0.5, None)
    assert low.is_greedy
    high = ChatSettings.from_controls(*HIGH_ENDS).sampling()
    assert (high.temperature, high.top_p, high.top_k, high.min_p) == (2.0, 1.0, 200, 1.0)
    assert (high.max_tokens, high.repetition_penalty, high.seed) == (4096, 2.0, 2**53)
    assert isinstance(high.temperature, float)
    assert isinstance(high.top_k, int)


def test_an_emptied_control_is_its_usual_value() -> None:
    assert ChatSettings.from_controls(*([None] * 8)) == ChatSettings()


def test_br_28_a_value_out_of_range_is_refused_by_name() -> None:
    with pytest.raises(InvalidParameterError, match="temperature must be from 0 to 2, not 3"):
        ChatSettings(temperature=3).sampling()


def test_a_models_own_defaults_are_taken_where_there_is_a_control() -> None:
    defaults = {"temperature": 0.2, "top_k": 50.0, "presence_penalty": 1.0}
    assert ChatSettings().with_defaults_of(defaults) == ChatSettings(temperature=0.2, top_k=50)
