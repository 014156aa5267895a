"""The core with memory below the device: what comes back, what a failure costs, what is forgotten.

Blocks hold 4 tokens.
"""

from __future__ import annotations

import logging
import random

import pytest

from engine.batch import BlockCopy, ScheduledBatch
from engine.errors import DeviceLostError
from engine.request import FinishReason
from tests.engine_factories import CoreDriver
from tests.fake_disk import FakeDisk, make_disk_tier

PROMPT = tuple(range(40, 62))  # five whole blocks and a half one
OTHER = tuple(range(100, 140))


def evicted(driver: CoreDriver, prompt: tuple[int, ...] = PROMPT, **values: str) -> None:
    """Compute a prompt, then enough others that none of its blocks stays on the device."""
    driver.add("first", prompt, max_tokens=1, **values)
    driver.run()
    for number in (1, 2):
        driver.add("other", [number, *OTHER], max_tokens=1)
        driver.run()
    assert driver.kv.match_prefix("probe", (*prompt, 1)).block_ids == ()
    driver.kv.forget("probe")


def small_driver(**values: object) -> CoreDriver:
    return CoreDriver(**({"num_blocks": 12, "num_host_slots": 40} | values))  # type: ignore[arg-type]


def check(driver: CoreDriver, request_id: str, prompt: tuple[int, ...], num_tokens: int) -> None:
    assert driver.tokens(request_id) == driver.runner.expected_tokens(prompt, num_tokens)


def test_what_was_evicted_comes_back_and_is_counted() -> None:
    driver = small_driver()
    evicted(driver)
    request = driver.add("again", (*PROMPT, 9), max_tokens=4)
    driver.run()
    check(driver, "again", (*PROMPT, 9), 4)
    assert (request.num_cached_tokens, request.num_host_tokens) == (20, 20)
    trace = driver.last("again").trace
    assert trace is not None
    assert (trace.num_host_tokens, trace.num_disk_tokens) == (20, 0)
    stats = driver.core.stats()
    assert (stats.num_host_tokens_total, stats.num_restored_blocks_total) == (20, 5)
    assert stats.num_host_blocks == stats.num_saved_blocks_total


def test_a_restored_block_is_shared_like_any_other() -> None:
    driver = small_driver()
    evicted(driver)
    driver.add("a", (*PROMPT, 9), max_tokens=6)
    driver.step()
    twin = driver.add("b", (*PROMPT, 8), max_tokens=2)
    driver.run()
    assert (twin.num_cached_tokens, twin.num_host_tokens) == (20, 0)
    assert driver.runner.mover.calls.count(("load", 5)) == 1
    check(driver, "b", (*PROMPT, 8), 2)


def test_an_equal_request_of_the_same_step_waits_for_the_load() -> None:
    driver = small_driver()
    evicted(driver)
    for name in "ab":
        driver.add(name, (*PROMPT, ord(name)), max_tokens=2)
    driver.run()
    assert [call for call in driver.runner.mover.calls if call[0] == "load"] == [("load", 5)]
    for name in "ab":
        check(driver, name, (*PROMPT, ord(name)), 2)


@pytest.mark.parametrize("kind", ["load", "save", "fill", "spill"])
def test_a_move_that_always_fails_costs_nothing_but_time(kind: str) -> None:
    disk = FakeDisk()
    driver = small_driver(num_host_slots=4, disk=make_disk_tier(disk))

    def fault(what: str) -> None:
        if what == kind:
            raise RuntimeError(f"the {what} failed")

    driver.runner.mover.fault = fault
    rng = random.Random(1)
    for turn in range(30):
        prompt = (*PROMPT[: 4 * rng.randrange(1, 6)], *(rng.randrange(4) for _ in range(9)))
        driver.add(f"r{turn}", prompt, max_tokens=3)
        while driver.core.has_work:
            driver.step()
            disk.work()
        check(driver, f"r{turn}", prompt, 3)
        driver.core.check_integrity()


def test_who_counts_on_a_failed_load_begins_again_and_nothing_is_published() -> None:
    driver = small_driver()
    evicted(driver)
    failures = iter([True, True])  # loads are tried twice

    def fault(kind: str) -> None:
        if kind == "load" and next(failures, False):
            raise RuntimeError("the load failed")

    driver.runner.mover.fault = fault
    request = driver.add("again", (*PROMPT, 9), max_tokens=4)
    while driver.core.has_work:
        driver.step()
    check(driver, "again", (*PROMPT, 9), 4)
    assert driver.reason("again") is FinishReason.LENGTH
    assert (request.num_cached_tokens, request.num_preemptions) == (0, 1)
    assert driver.core.stats().num_host_tokens_total == 0


def test_a_failed_load_after_a_preemption_changes_no_figure_of_the_first_start() -> None:
    driver = small_driver(num_blocks=24)
    driver.add("first", PROMPT, max_tokens=1)
    driver.run()
    request = driver.add("again", (*PROMPT, 9), max_tokens=4)
    driver.step()
    num_cached_tokens = request.num_cached_tokens
    assert num_cached_tokens >= 20
    driver.scheduler._roster.preempt(request)
    driver.step()
    driver.scheduler._roster.take_back(request)
    assert request.num_cached_tokens == num_cached_tokens
    driver.run()
    check(driver, "again", (*PROMPT, 9), 4)


def test_a_copy_is_made_though_nobody_is_left_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has started and computes in a later step counts on it."""
    driver = small_driver()
    copies: list[BlockCopy] = []
    monkeypatch.setattr(driver.runner, "execute", lambda batch: copies.extend(batch.block_copies))
    planned = ScheduledBatch((), (BlockCopy(0, 1, 2),))
    monkeypatch.setattr(driver.scheduler, "schedule", lambda now_s: planned)
    driver.core.step()
    assert copies == [BlockCopy(0, 1, 2)]


def test_a_load_that_fails_once_is_repeated() -> None:
    driver = small_driver()
    evicted(driver)
    failures = iter([True])

    def fault(kind: str) -> None:
        if kind == "load" and next(failures, False):
            raise RuntimeError("the load failed")

    driver.runner.mover.fault = fault
    request = driver.add("again", (*PROMPT, 9), max_tokens=4)
    driver.run()
    check(driver, "again", (*PROMPT, 9), 4)
    assert (request.num_cached_tokens, request.num_preemptions) == (20, 0)


def test_a_save_is_never_repeated_after_the_step_has_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = small_driver()
    driver.add("first", PROMPT, max_tokens=1)
    driver.run()
    failures = iter([True])

    def fail_once(batch: ScheduledBatch) -> None:
        if len(batch.requests) == 1 and next(failures, False):
            raise RuntimeError("the step failed, its blocks hold garbage")

    driver.runner.fault = fail_once
    with caplog.at_level(logging.CRITICAL):
        evicted(driver)
    saves = [num for kind, num in driver.runner.mover.calls if kind == "save"]
    assert sum(saves) == driver.core.stats().num_saved_blocks_total
    driver.add("again", (*PROMPT, 9), max_tokens=4)
    driver.run()
    check(driver, "again", (*PROMPT, 9), 4)


def test_a_device_that_is_lost_while_blocks_move_is_noticed() -> None:
    driver = small_driver()
    evicted(driver)

    def lose(kind: str) -> None:
        driver.runner.is_lost = True
        raise RuntimeError("CUDA error")

    driver.runner.mover.fault = lose
    driver.add("again", (*PROMPT, 9), max_tokens=4)
    with pytest.raises(DeviceLostError):
        driver.run()


def test_what_was_computed_from_a_distrusted_block_leaves_the_tiers_too() -> None:
    driver = small_driver(prompt_tokens=8)
    evicted(driver)
    driver.add("bad", (*PROMPT, 9), max_tokens=9)
    driver.step()
    driver.runner.wrong_numbers.add("bad")
    driver.run()
    assert driver.kv.match_prefix("next", (*PROMPT, 1)).num_tokens == 0
    driver.kv.forget("next")
    driver.core.check_integrity()


def test_forgetting_ends_the_conversations_requests_first() -> None:
    driver = small_driver()
    evicted(driver, conversation="c1")
    driver.add("running", (*PROMPT, 9), max_tokens=20, conversation="c1")
    driver.add("neighbour", OTHER[:9], max_tokens=9, conversation="c2")
    driver.step()
    ended = driver.core.forget(["c1"])
    assert [(output.request_id, output.finish_reason) for output in ended] == [
        ("running", FinishReason.ABORT)
    ]
    assert driver.kv.match_prefix("probe", (*PROMPT, 9)).num_tokens == 0
    driver.kv.forget("probe")
    driver.run()
    check(driver, "neighbour", OTHER[:9], 9)


def test_what_another_conversation_has_used_stays() -> None:
    driver = small_driver(num_blocks=24)
    driver.add("a", (*PROMPT[:12], 1, 2, 3, 4, 5), max_tokens=1, conversation="c1")
    driver.add("b", (*PROMPT[:12], 6, 7, 8, 9, 5), max_tokens=1, conversation="c2")
    driver.run()
    driver.core.forget(["c1"])
    assert driver.kv.match_prefix("x", (*PROMPT[:12], 1, 2, 3, 4, 5)).num_tokens == 12
    assert driver.kv.match_prefix("y", (*PROMPT[:12], 6, 7, 8, 9, 5)).num_tokens == 16


def test_a_request_waits_for_the_disk_while_others_go_on() -> None:
    disk = FakeDisk()
    driver = small_driver(num_host_slots=8, disk=make_disk_tier(disk))
    evicted(driver)
    for number in range(4):  # push it out of the host's memory as well
        driver.add("more", [number, *OTHER], max_tokens=1)
        driver.run()
        disk.work()
    old = driver.add("old", (*PROMPT, 9), max_tokens=2)
    new = driver.add("new", OTHER, max_tokens=4)
    driver.step()
    assert (old.num_computed_tokens, new.num_computed_tokens) == (0, len(OTHER))
    disk.work()
    driver.run()
    assert (old.num_cached_tokens, old.num_disk_tokens) == (16, 16)  # as many as may be read
    check(driver, "old", (*PROMPT, 9), 2)


def test_a_disk_that_never_answers_is_not_waited_for_longer_than_its_limit() -> None:
    disk = FakeDisk()
    driver = small_driver(num_host_slots=8, disk=make_disk_tier(disk))
    evicted(driver)
    for number in range(4):
        driver.add("more", [number, *OTHER], max_tokens=1)
        driver.run()
        disk.work()
    request = driver.add("old", (*PROMPT, 9), max_tokens=2)
    steps = 0
    while driver.core.has_work:
        driver.step(seconds=0.5)
        steps += 1
    assert request.first_scheduled_s is not None
    assert request.first_scheduled_s - request.arrival_s == pytest.approx(3.0, abs=0.6)
    assert request.num_cached_tokens == 0
    check(driver, "old", (*PROMPT, 9), 2)


def _visit(driver: CoreDriver, num_chats: int, num_rounds: int) -> int:
    """Everybody says something, round after round; returns the tokens that were cached."""
    chats = [[number, *range(50, 110)] for number in range(num_chats)]
    num_cached = 0
    for turn in range(num_rounds):
        for number, chat in enumerate(chats):
            name = f"{turn}.{number}"
            chat += [200 + turn, number, 7, 8, 9, 10, 11]
            request = driver.add(name, chat, max_tokens=4)
            driver.run()
            assert driver.tokens(name) == driver.runner.expected_tokens(chat, 4)
            num_cached += request.num_cached_tokens
            chat += driver.tokens(name)
    return num_cached


def test_24_conversations_on_a_pool_for_4_reuse_nine_tenths_of_what_an_endless_pool_would() -> None:
    num_blocks = 4 * 105 // 4  # four chats at their longest
    limited = CoreDriver(num_blocks=num_blocks, num_host_slots=24 * 30)
    endless = CoreDriver(num_blocks=24 * 40)
    served, possible = (_visit(driver, 24, 4) for driver in (limited, endless))
    assert endless.kv.usage().num_evicted_total == 0
    assert limited.kv.usage().num_evicted_total > 1000
    assert served >= 0.9 * possible
    without = CoreDriver(num_blocks=num_blocks)
    assert _visit(without, 24, 4) == 0  # in rotation the pool alone is of no use
