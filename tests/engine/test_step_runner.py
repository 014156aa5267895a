"""Failures in the forward pass, the copies and the numbers; blocks hold 4 tokens."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from engine.batch import ScheduledBatch
from engine.errors import DeviceLostError
from engine.request import FinishReason
from tests.engine_factories import CoreDriver

PROMPT = tuple(range(40, 62))


def fail_with(request_id: str) -> Any:
    def fault(batch: ScheduledBatch) -> None:
        if any(item.request.request_id == request_id for item in batch.requests):
            raise RuntimeError("CUDA out of memory, secret path /root")

    return fault


def test_a_failed_step_is_repeated_and_only_who_fails_again_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = CoreDriver()
    for name in "abc":
        driver.add(name, [*PROMPT, ord(name)], max_tokens=4)
    driver.step()
    driver.runner.fault = fail_with("b")
    with caplog.at_level(logging.ERROR):
        driver.run()
    assert driver.reason("b") is FinishReason.ERROR
    error = driver.last("b").error
    assert error == "The model failed while computing this reply. Please try again."
    assert "Request b failed alone too" in caplog.text
    for name in "ac":
        assert driver.tokens(name) == driver.runner.expected_tokens([*PROMPT, ord(name)], 4)
    assert driver.core.stats().num_step_failures_total == 1


def test_a_step_that_fails_once_costs_nobody_anything() -> None:
    driver = CoreDriver()
    for name in "ab":
        driver.add(name, [*PROMPT, ord(name)], max_tokens=6)
    failures = iter([True])

    def fail_once(batch: ScheduledBatch) -> None:
        if len(batch.requests) == 2 and next(failures, False):
            raise RuntimeError("once")

    driver.runner.fault = fail_once
    driver.run()
    for name in "ab":
        assert driver.tokens(name) == driver.runner.expected_tokens([*PROMPT, ord(name)], 6)
    assert next(failures, None) is None


def test_blocks_of_a_failed_request_never_enter_the_cache() -> None:
    driver = CoreDriver(prompt_tokens=8)
    driver.add("a", PROMPT, max_tokens=9)
    driver.step()
    driver.runner.wrong_numbers.add("a")
    driver.run()
    assert driver.last("a").error == "The model gave numbers that are not finite."
    assert driver.kv.match_prefix("next", PROMPT).num_tokens == 0
    assert driver.kv.usage().num_free == 64


def test_a_failing_copy_ends_only_who_needs_it() -> None:
    driver = CoreDriver()
    driver.add("a", PROMPT, max_tokens=4)
    driver.run()
    driver.add("b", (*PROMPT[:20], 1, 2, 3), max_tokens=4)  # whole blocks only
    driver.add("c", (*PROMPT, 70), max_tokens=4)
    driver.add("d", (*PROMPT, 71), max_tokens=4)

    def no_copies(batch: ScheduledBatch) -> None:
        if batch.block_copies:
            raise RuntimeError("copy")

    driver.runner.fault = no_copies
    driver.run()
    reasons = [driver.reason(name) for name in "bcd"]
    assert reasons == [FinishReason.LENGTH, FinishReason.ERROR, FinishReason.ERROR]
    driver.runner.fault = lambda batch: None
    driver.add("e", (*PROMPT, 70), max_tokens=4)
    driver.run()
    assert driver.tokens("e") == driver.runner.expected_tokens((*PROMPT, 70), 4)


@pytest.mark.parametrize("when", ["step", "copy"])
def test_a_device_that_fails_its_check_is_lost(when: str) -> None:
    driver = CoreDriver()
    driver.add("a", PROMPT, max_tokens=4)
    driver.run()
    driver.add("b", (*PROMPT, 70), max_tokens=4)

    def lose(batch: ScheduledBatch) -> None:
        if when == "step" or batch.block_copies:
            driver.runner.is_lost = True
            driver.runner.check_device()

    driver.runner.fault = lose
    with pytest.raises(DeviceLostError, match="does not work any more"):
        driver.run()


def test_a_device_that_is_lost_while_requests_are_repeated_is_noticed() -> None:
    driver = CoreDriver()
    for name in "ab":
        driver.add(name, [*PROMPT, ord(name)], max_tokens=4)

    def fault(batch: ScheduledBatch) -> None:
        driver.runner.is_lost = len(batch.requests) == 1
        raise RuntimeError("device-side assert")

    driver.runner.fault = fault
    with pytest.raises(DeviceLostError):
        driver.step()
