from __future__ import annotations

from engine.histogram import Histogram, RecentRate, RecentSamples, one_two_five
from engine.stats import HistogramSnapshot, Percentiles


def test_counts_are_cumulative_and_bounds_belong_to_their_bucket() -> None:
    histogram = Histogram((1.0, 2.0, 5.0))
    for value in (0.5, 1.0, 1.5, 5.0, 9.0):
        histogram.add(value)
    assert histogram.snapshot() == HistogramSnapshot((1.0, 2.0, 5.0), (2, 3, 4), 5, 17.0)


def test_br_52_a_negative_value_counts_as_zero() -> None:
    histogram = Histogram((1.0,))
    histogram.add(-3.0)
    assert histogram.snapshot() == HistogramSnapshot((1.0,), (1,), 1, 0.0)


def test_percentiles_of_nothing_are_unknown() -> None:
    assert RecentSamples().percentiles() is None


def test_percentiles_of_the_newest_samples() -> None:
    samples = RecentSamples(max_samples=101)
    for value in range(1000):
        samples.add(float(value))
    assert samples.percentiles() == Percentiles(949.0, 994.0, 998.0)


def test_a_rate_is_of_the_last_ten_seconds() -> None:
    rate = RecentRate()
    assert rate.per_second(0.0) == 0.0
    for second in range(20):
        rate.add(30, float(second))
    assert rate.per_second(19.0) == 30.0
    assert rate.per_second(24.0) == 15.0
    assert rate.per_second(100.0) == 0.0


def test_a_young_rate_is_not_diluted() -> None:
    rate = RecentRate()
    rate.add(0, 0.0)
    rate.add(40, 2.0)
    assert rate.per_second(2.0) == 20.0


def test_one_two_five() -> None:
    assert one_two_five(60) == (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
