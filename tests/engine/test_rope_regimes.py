"""The regime follows the number of tokens that a sequence feeds to the model."""

from __future__ import annotations

import pytest

from engine.rope_regimes import LONG, ONE_TABLE, SHORT, RopeRegimes


@pytest.mark.parametrize(
    ("num_tokens", "expected"), [(1, SHORT), (63, SHORT), (64, SHORT), (65, LONG), (9000, LONG)]
)
def test_the_short_table_serves_up_to_the_original_length(num_tokens: int, expected: str) -> None:
    assert RopeRegimes(64).regime(num_tokens) == expected


def test_models_with_one_table_have_one_regime() -> None:
    assert {ONE_TABLE.regime(num_tokens) for num_tokens in (1, 5000)} == {""}
