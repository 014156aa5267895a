from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.kv_quality import AUTO_BOUND, MeasuredFormat, QualityTable


def table(**kld_by_scheme: float) -> QualityTable:
    return QualityTable(
        tuple(
            MeasuredFormat("Maker/Model", scheme, kld, 0.95, "2026-12-01", "abc1234")
            for scheme, kld in kld_by_scheme.items()
        )
    )


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({}, "int8"),
        ({"int8": 0.0003}, "int8"),
        ({"int8": 0.0003, "k8v4": AUTO_BOUND, "int4": 0.04}, "k8v4"),
        ({"int8": 0.0003, "k8v4": 0.0065, "int4": 0.0009}, "int4"),
        ({"none": 0.0, "int8": 0.02, "k8v4": 0.5, "int4": 3.0}, "none"),
    ],
)
def test_auto_takes_the_smallest_format_that_was_measured_to_be_good(
    measured: dict[str, float], expected: str
) -> None:
    assert table(**measured).choose("maker/model") == expected


def test_what_was_measured_of_one_model_says_nothing_of_another() -> None:
    assert table(int8=0.0001, int4=0.0001).choose("maker/other") == "int8"


def test_a_bad_format_is_announced_with_its_figures() -> None:
    warning = table(int8=0.0003, int4=0.041).warning("maker/model", "int4")
    assert warning is not None
    assert "int4" in warning
    assert "0.041" in warning
    assert "95.0%" in warning
    assert "auto for int8" in warning


def test_an_unmeasured_format_is_announced_with_the_command_that_measures_it() -> None:
    warning = table().warning("maker/model", "k8v4")
    assert warning is not None
    assert "python -m bench.kv_quality --model maker/model" in warning


@pytest.mark.parametrize("scheme", ["none", "int8"])
def test_what_auto_may_take_is_not_warned_of(scheme: str) -> None:
    assert table().warning("maker/model", scheme) is None


def test_int8_is_warned_of_where_it_was_measured_to_be_bad() -> None:
    assert table(int8=0.02).warning("maker/model", "int8") is not None


def test_auto_refuses_four_bits_for_the_bundled_model() -> None:
    assert EngineConfig().kv_scheme == "int8"
    for scheme in ("k8v4", "int4"):
        assert "was measured at" in (QualityTable().warning("bundled", scheme) or "")
