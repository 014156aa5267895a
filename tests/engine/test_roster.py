"""Crossing into another rope regime: what is computed again, what is kept, and who gives way.

Blocks hold 4 tokens; sequences of more than 8 are long ones.
"""

from __future__ import annotations

import pytest

from engine.batch import ScheduledBatch
from engine.kv.manager import KVCacheManager
from engine.request import FinishReason, Request, RequestStatus
from engine.rope_regimes import LONG, SHORT
from engine.scheduler import Scheduler
from tests.engine_factories import CoreDriver, make_request, make_scheduler, plan_of, run_batch
from tests.factories import make_kv_manager

ORIGINAL = 8


class Crossing:
    """A scheduler and its requests."""

    def __init__(self, *, num_blocks: int = 64, prompt_tokens: int = 16, slots: int = 8) -> None:
        self.kv: KVCacheManager = make_kv_manager(num_blocks=num_blocks)
        self.scheduler: Scheduler = make_scheduler(
            kv=self.kv,
            prompt_tokens=prompt_tokens,
            max_num_seqs=slots,
            original_max_len=ORIGINAL,
        )

    def add(self, request_id: str, prompt: range | list[int], **values: object) -> Request:
        request = make_request(request_id, prompt, max_tokens=99, **values)  # type: ignore[arg-type]
        self.scheduler.add(request)
        return request

    def batch(self) -> ScheduledBatch:
        batch = self.scheduler.schedule(0.0)
        run_batch(self.scheduler, batch)
        self.scheduler.check_integrity()
        return batch

    def step(self) -> dict[str, int]:
        return plan_of(self.batch())


@pytest.mark.parametrize(("num_tokens", "regime"), [(8, SHORT), (9, LONG)])
def test_a_prompt_s_length_decides_before_it_starts(num_tokens: int, regime: str) -> None:
    crossing = Crossing()
    assert crossing.add("a", range(num_tokens)).rope_regime == regime
    assert crossing.step() == {"a": num_tokens}


def test_the_ninth_token_makes_all_be_computed_again_in_the_same_step() -> None:
    crossing = Crossing()
    request = crossing.add("a", range(8))
    assert crossing.step() == {"a": 8}
    assert request.output_token_ids == [7]
    assert crossing.step() == {"a": 9}
    assert request.rope_regime == LONG
    assert crossing.step() == {"a": 1}
    assert (request.num_recomputed_tokens, request.num_preemptions) == (8, 0)
    assert request.output_token_ids == [7, 7, 7]


def test_a_last_token_that_is_never_fed_crosses_nothing() -> None:
    driver = CoreDriver(original_max_len=ORIGINAL)
    driver.add("a", range(5), max_tokens=4)
    driver.run()
    assert driver.tokens("a") == driver.runner.expected_tokens(range(5), 4)
    assert driver.runner.num_tokens_computed == 8


def test_br_12_a_crossing_takes_no_more_than_the_budget_and_neighbours_go_on() -> None:
    crossing = Crossing(prompt_tokens=4)
    neighbour = crossing.add("n", [90, 91], arrival_s=1.0)
    crossing.add("a", range(6), arrival_s=0.0)
    for _ in range(3):
        crossing.step()
    plans = [crossing.step() for _ in range(8)]
    assert all(plan["n"] == 1 for plan in plans[:3])
    assert any(plan.get("a") == 4 for plan in plans)
    assert all(plan.get("a", 0) <= 4 and plan.get("n", 0) <= 4 for plan in plans)
    assert len(neighbour.output_token_ids) >= 7


def test_who_crosses_takes_turns_with_a_new_prompt_like_any_prefill() -> None:
    crossing = Crossing(prompt_tokens=8)
    crossing.add("a", range(8), user="ann")
    crossing.step()
    crossing.add("b", range(50, 66), user="bob", arrival_s=1.0)
    # bob is the least served and leads: one half of the budget each
    assert crossing.step() == {"b": 4, "a": 4}


def test_the_slot_is_kept_while_others_wait() -> None:
    crossing = Crossing(slots=1)
    crossing.add("a", range(8), user="ann")
    crossing.step()
    crossing.add("b", range(50, 54), user="bob", arrival_s=1.0)
    assert crossing.step() == {"a": 9}
    assert crossing.scheduler.num_waiting == 1


def test_short_blocks_stay_for_short_sequences_and_long_ones_for_long() -> None:
    crossing = Crossing()
    first = crossing.add("a", range(8))
    crossing.step()
    crossing.step()
    crossing.scheduler.finish(first, FinishReason.STOP, first.num_computed_tokens)
    short = crossing.add("s", [*range(4), 50, 51])
    long = crossing.add("l", [*range(8), 60])
    assert crossing.batch().requests[0].start == 4
    assert (short.num_cached_tokens, long.num_cached_tokens) == (4, 8)


def test_what_the_long_regime_has_cached_is_not_computed_again() -> None:
    crossing = Crossing()
    long = crossing.add("l", [*range(8), 60])
    crossing.step()
    crossing.scheduler.finish(long, FinishReason.STOP, 9)
    request = crossing.add("a", range(8))
    assert crossing.step() == {"a": 8}  # nothing of the long one is taken by a short one
    assert crossing.step() == {"a": 1}  # and its two blocks by one that has become long
    assert request.num_recomputed_tokens == 0


def test_the_pool_need_not_hold_a_sequence_twice() -> None:
    crossing = Crossing(num_blocks=3)
    request = crossing.add("a", range(8))
    assert [crossing.step() for _ in range(4)] == [{"a": 8}, {"a": 9}, {"a": 1}, {"a": 1}]
    assert request.status is RequestStatus.RUNNING


def test_the_oldest_takes_blocks_from_others_to_cross() -> None:
    crossing = Crossing(num_blocks=5, prompt_tokens=64)
    old = crossing.add("a", range(7), arrival_s=0.0)
    crossing.add("b", range(50, 57), arrival_s=1.0)
    for _ in range(12):
        crossing.step()
    assert (old.num_preemptions, old.rope_regime) == (0, LONG)
    assert len(old.output_token_ids) >= 10


def test_one_who_was_preempted_starts_again_under_the_regime_it_had_reached() -> None:
    crossing = Crossing(slots=2, prompt_tokens=64)
    crossing.add("a0", range(4), user="ann", arrival_s=0.0)
    a1 = crossing.add("a1", range(50, 58), user="ann", arrival_s=1.0)
    crossing.step()
    crossing.step()
    bob = crossing.add("b", range(90, 94), user="bob", arrival_s=2.0)
    assert crossing.step() == {"a0": 1, "b": 4}
    assert (a1.status, a1.rope_regime) == (RequestStatus.WAITING, LONG)
    crossing.scheduler.finish(bob, FinishReason.LENGTH, 4)
    assert crossing.step() == {"a0": 1, "a1": 1}


def test_without_a_free_block_it_waits_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    crossing = Crossing()
    request = crossing.add("a", range(8))
    crossing.step()
    crossing.add("b", range(50, 54), arrival_s=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(crossing.kv, "start", lambda *arguments: None)
        assert crossing.step() == {}
    assert crossing.scheduler.progress()["a"].queue_position == 1
    assert crossing.step() == {"a": 9, "b": 4}
    assert (request.num_preemptions, request.num_recomputed_tokens) == (1, 8)


def test_an_abort_right_before_the_crossing_keeps_the_short_blocks() -> None:
    crossing = Crossing()
    request = crossing.add("a", range(8))
    crossing.step()
    crossing.scheduler.finish(request, FinishReason.ABORT, 8)
    crossing.scheduler.check_integrity()
    again = crossing.add("b", range(8))
    crossing.step()
    assert (again.num_cached_tokens, again.rope_regime) == (7, SHORT)


def test_a_failed_step_of_a_crossing_request_is_run_again() -> None:
    driver = CoreDriver(original_max_len=ORIGINAL)
    failures = iter([False, True])
    driver.runner.fault = lambda batch: _raise() if next(failures, False) else None
    driver.add("a", range(8), max_tokens=6)
    driver.run()
    assert driver.tokens("a") == driver.runner.expected_tokens(range(8), 6)


def _raise() -> None:
    raise RuntimeError("the step failed once")


def test_the_trace_says_how_much_was_computed_once_more() -> None:
    driver = CoreDriver(original_max_len=ORIGINAL)
    driver.add("a", range(6), max_tokens=6)
    driver.run()
    trace = driver.last("a").trace
    assert trace is not None
    assert (trace.num_recomputed_tokens, trace.num_preemptions) == (8, 0)
    assert driver.tokens("a") == driver.runner.expected_tokens(range(6), 6)
