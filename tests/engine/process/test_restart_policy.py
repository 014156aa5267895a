from __future__ import annotations

from engine.process.restart_policy import WINDOW_S, RestartPolicy


def test_the_first_start_is_at_once_and_later_ones_wait() -> None:
    policy = RestartPolicy()
    delays = [policy.delay_s(float(second), has_served=True) for second in range(8)]
    assert delays == [0.0, 1.0, 3.0, 7.0, 15.0, 30.0, 30.0, 30.0]


def test_three_ends_without_service_are_enough() -> None:
    policy = RestartPolicy()
    assert [policy.delay_s(float(second), has_served=False) for second in range(3)] == [0, 1, None]


def test_service_between_them_clears_the_account() -> None:
    policy = RestartPolicy()
    served = [False, False, True, False, False, True]
    assert None not in [policy.delay_s(float(s), has_served=good) for s, good in enumerate(served)]


def test_what_is_long_ago_does_not_count() -> None:
    policy = RestartPolicy()
    for number in range(10):
        assert policy.delay_s(number * (WINDOW_S + 1), has_served=False) == 0.0
