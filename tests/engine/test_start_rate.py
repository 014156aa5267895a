from __future__ import annotations

import pytest

from engine.start_rate import StartRate


def test_it_is_unknown_before_the_first_start() -> None:
    rate = StartRate()
    rate.queue_formed(0.0)
    assert rate.interval_s(100.0) is None


def test_it_is_the_mean_of_the_newest() -> None:
    rate = StartRate()
    rate.queue_formed(0.0)
    for number in range(40):
        rate.started(100.0 + number if number < 8 else 107.0 + 2.0 * (number - 7), arrived_s=0.0)
    assert rate.interval_s(171.0) == pytest.approx(2.0)


def test_time_without_a_queue_does_not_count() -> None:
    rate = StartRate()
    rate.queue_formed(0.0)
    rate.started(2.0, arrived_s=0.0)
    rate.queue_emptied()
    assert rate.interval_s(3600.0) == 2.0
    rate.queue_formed(3600.0)
    rate.queue_formed(3601.0)  # one more waits
    rate.started(3604.0, arrived_s=0.0)
    assert rate.interval_s(3604.0) == 3.0


def test_an_overdue_start_makes_it_longer() -> None:
    rate = StartRate()
    rate.queue_formed(0.0)
    rate.started(1.0, arrived_s=0.0)
    assert rate.interval_s(1.5) == 1.0
    assert rate.interval_s(10.0) == 5.0


def test_without_a_queue_the_wait_of_the_one_counts() -> None:
    rate = StartRate()
    rate.started(9.0, arrived_s=3.0)
    assert rate.interval_s(9.0) == 6.0
