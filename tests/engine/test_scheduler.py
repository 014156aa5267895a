"""Exact plans in small cases; blocks hold 4 tokens."""

from __future__ import annotations

import pytest

from engine.batch import ScheduledBatch
from engine.errors import OutOfBlocksError
from engine.request import FinishReason, Request, RequestStatus
from engine.scheduler import Scheduler
from engine.token_budget import TokenBudget
from tests.engine_factories import make_request, make_scheduler, plan_of, run_batch
from tests.factories import make_kv_manager


def add(scheduler: Scheduler, request_id: str, prompt: object, **values: object) -> Request:
    """`prompt` is token ids, or a length: then the ids are this request's own."""
    if isinstance(prompt, int):
        prompt = [100 * (1 + scheduler.num_running + scheduler.num_waiting)] * prompt
    request = make_request(request_id, prompt, **values)  # type: ignore[arg-type]
    scheduler.add(request)
    return request


def step(scheduler: Scheduler) -> dict[str, int]:
    """Plan a step and run it; answers with the tokens by request."""
    batch = scheduler.schedule(now_s=0.0)
    run_batch(scheduler, batch)
    scheduler.check_integrity()
    return plan_of(batch)


def test_a_prompt_is_computed_in_chunks_and_then_decoded() -> None:
    scheduler = make_scheduler(prompt_tokens=8)
    request = add(scheduler, "a", 18)
    assert [step(scheduler) for _ in range(4)] == [{"a": 8}, {"a": 8}, {"a": 2}, {"a": 1}]
    assert request.num_computed_tokens == 19
    assert request.output_token_ids == [7, 7]


def test_a_batch_says_what_the_runner_needs() -> None:
    scheduler = make_scheduler(prompt_tokens=8)
    add(scheduler, "a", 10)
    first = scheduler.schedule(0.0)
    assert first.requests[0][1:] == (0, 8, (0, 1), False)
    run_batch(scheduler, first)
    second = scheduler.schedule(0.0)
    assert second.requests[0][1:] == (8, 2, (0, 1, 2), True)
    assert second.block_copies == ()


def test_decodes_come_first_and_take_nothing_from_the_prompt_budget() -> None:
    scheduler = make_scheduler(prompt_tokens=8)
    add(scheduler, "a", 4)
    add(scheduler, "b", 4)
    assert step(scheduler) == {"a": 4, "b": 4}
    add(scheduler, "c", 100)
    assert list(step(scheduler).items()) == [("a", 1), ("b", 1), ("c", 8)]
    assert scheduler.token_budget == 10


def test_several_prompts_share_a_step_and_the_head_gets_half() -> None:
    scheduler = make_scheduler(prompt_tokens=32)
    add(scheduler, "long", 200, arrival_s=0)
    add(scheduler, "mid", 20, arrival_s=1)
    add(scheduler, "short", 6, arrival_s=2)
    # 16 for the head, 6 for the shortest, 10 for the next: 8 end on a block boundary
    assert step(scheduler) == {"long": 16, "mid": 8, "short": 6}


def test_what_short_prompts_leave_goes_to_the_head() -> None:
    scheduler = make_scheduler(prompt_tokens=32)
    add(scheduler, "long", 200, arrival_s=0)
    add(scheduler, "short", 4, arrival_s=1)
    assert step(scheduler) == {"long": 28, "short": 4}


def test_br_37_a_long_prompt_is_not_starved_by_short_ones() -> None:
    scheduler = make_scheduler(prompt_tokens=16, max_num_seqs=64)
    long = add(scheduler, "long", 200, user="ann")
    for index in range(40):
        add(scheduler, f"s{index}", 8, user=f"user {index}", arrival_s=index + 1.0, max_tokens=99)
        step(scheduler)
    assert long.num_computed_tokens >= 40 * 4


def test_br_37_who_decodes_waits_for_one_chunk_not_for_three_long_prompts() -> None:
    kv = make_kv_manager(num_blocks=1024, block_size=16)
    budget = TokenBudget(target_s=0.3, max_tokens=1024)
    scheduler = Scheduler(kv=kv, budget=budget, max_num_seqs=8)
    victim = add(scheduler, "victim", 40, user="ann", max_tokens=700)
    gaps_s: list[float] = []
    long: list[Request] = []
    for step_number in range(120):
        if step_number == 10:
            long = [add(scheduler, f"long {n}", 4000 + n, user=f"user {n}") for n in range(3)]
        batch = scheduler.schedule(0.0)
        gaps_s.append(0.06 + 0.0015 * batch.num_prompt_tokens)
        scheduler.observe(batch, gaps_s[-1])
        run_batch(scheduler, batch)
    assert len(victim.output_token_ids) == 120
    assert max(gaps_s[1:]) <= 0.31
    assert all(request.output_token_ids for request in long)


def test_slots_bound_how_many_run() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    for index in range(3):
        add(scheduler, f"r{index}", 4, arrival_s=index)
    step(scheduler)
    assert (scheduler.num_running, scheduler.num_waiting) == (2, 1)
    positions = [progress.queue_position for progress in scheduler.progress().values()]
    assert positions == [None, None, 1]


def test_one_with_ten_requests_does_not_delay_one_with_one() -> None:
    scheduler = make_scheduler(max_num_seqs=4, prompt_tokens=64)
    for index in range(10):
        add(scheduler, f"a{index}", 4, user="ann", arrival_s=index)
    assert step(scheduler) == {"a0": 4, "a1": 4, "a2": 4, "a3": 4}
    bob = add(scheduler, "b", 4, user="bob", arrival_s=20)
    assert step(scheduler) == {"a0": 1, "a1": 1, "a2": 1, "b": 4}
    assert bob.status is RequestStatus.RUNNING
    assert scheduler.num_preemptions == 1
    assert scheduler.progress()["a3"].queue_position == 1


def test_a_slot_is_not_taken_from_who_has_only_one() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    add(scheduler, "a", 4, user="ann")
    add(scheduler, "b", 4, user="bob")
    step(scheduler)
    add(scheduler, "c", 4, user="cat", arrival_s=1)
    assert step(scheduler) == {"a": 1, "b": 1}


def test_a_user_gets_only_one_slot_from_others() -> None:
    scheduler = make_scheduler(max_num_seqs=4)
    for index in range(4):
        add(scheduler, f"a{index}", 4, user="ann", arrival_s=index)
    step(scheduler)
    for index in range(3):
        add(scheduler, f"b{index}", 4, user="bob", arrival_s=10 + index)
    assert step(scheduler) == {"a0": 1, "a1": 1, "a2": 1, "b0": 4}
    assert step(scheduler) == {"a0": 1, "a1": 1, "a2": 1, "b0": 1}


def test_one_who_was_preempted_continues_from_the_cache() -> None:
    scheduler = make_scheduler(max_num_seqs=2, prompt_tokens=64)
    add(scheduler, "a0", 8, user="ann", arrival_s=0)
    a1 = add(scheduler, "a1", 8, user="ann", arrival_s=1)
    step(scheduler)
    step(scheduler)
    bob = add(scheduler, "b", 4, user="bob", arrival_s=2)
    assert step(scheduler) == {"a0": 1, "b": 4}
    assert (a1.status, a1.num_computed_tokens) == (RequestStatus.WAITING, 0)
    scheduler.finish(bob, FinishReason.LENGTH, 4)
    # 8 of the prompt and 1 of the output are cached: only the newest token is computed
    assert step(scheduler) == {"a0": 1, "a1": 1}
    assert (a1.num_preemptions, a1.num_cached_tokens) == (1, 0)


def test_equal_prefixes_are_computed_once() -> None:
    scheduler = make_scheduler(max_num_seqs=16, prompt_tokens=400)
    system = list(range(20))
    for index in range(16):
        add(scheduler, f"r{index:02}", [*system, 50 + index, 51], arrival_s=index)
    assert step(scheduler) == {"r00": 22}
    second = step(scheduler)
    assert second == {"r00": 1} | {f"r{index:02}": 2 for index in range(1, 16)}


def test_a_follower_waits_while_a_long_prefix_is_being_computed() -> None:
    scheduler = make_scheduler(prompt_tokens=8)
    shared = list(range(16))
    add(scheduler, "a", [*shared, 91, 92, 93], arrival_s=0)
    add(scheduler, "b", [*shared, 81, 82, 83], arrival_s=1)
    add(scheduler, "c", [71, 72], arrival_s=2)  # nothing in common: does not wait
    assert step(scheduler) == {"a": 4, "c": 2}
    assert step(scheduler) == {"c": 1, "a": 8}
    assert step(scheduler) == {"c": 1, "a": 7}
    assert step(scheduler) == {"a": 1, "c": 1, "b": 3}  # "b" goes on from what they share


def test_who_waited_for_a_prefix_starts_when_its_owner_is_gone() -> None:
    scheduler = make_scheduler(prompt_tokens=8)
    first = add(scheduler, "a", range(40), arrival_s=0)
    add(scheduler, "b", [*range(30), 99], arrival_s=1)
    assert step(scheduler) == {"a": 8}
    scheduler.finish(first, FinishReason.ABORT, 8)
    batch = scheduler.schedule(0.0)
    assert [(item.request.request_id, item.start) for item in batch.requests] == [("b", 8)]


def test_other_salts_do_not_wait_for_each_other() -> None:
    scheduler = make_scheduler(prompt_tokens=64)
    add(scheduler, "a", range(16), cache_salt="x")
    add(scheduler, "b", range(16), cache_salt="y")
    assert step(scheduler) == {"a": 16, "b": 16}


def test_missing_blocks_for_a_decode_preempt_the_youngest_of_who_runs_most() -> None:
    scheduler = make_scheduler(kv=make_kv_manager(num_blocks=7), prompt_tokens=64)
    add(scheduler, "b", 7, user="bob", arrival_s=0)
    add(scheduler, "a0", 7, user="ann", arrival_s=1)
    add(scheduler, "a1", 7, user="ann", arrival_s=2)
    assert step(scheduler) == {"b": 7, "a0": 7, "a1": 7}
    assert step(scheduler) == {"b": 1, "a0": 1, "a1": 1}
    # each needs a third block and one is free
    assert step(scheduler) == {"b": 1, "a0": 1}
    assert scheduler.progress()["a1"].status is RequestStatus.WAITING


def test_the_oldest_is_never_preempted_for_blocks() -> None:
    scheduler = make_scheduler(kv=make_kv_manager(num_blocks=4), prompt_tokens=64)
    oldest = add(scheduler, "a0", 7, user="ann", arrival_s=0)
    add(scheduler, "b", 7, user="bob", arrival_s=1)
    step(scheduler)
    step(scheduler)
    assert step(scheduler) == {"a0": 1}
    assert oldest.num_preemptions == 0


def test_prompts_get_the_blocks_there_are() -> None:
    scheduler = make_scheduler(kv=make_kv_manager(num_blocks=6), prompt_tokens=64)
    add(scheduler, "a", 8, arrival_s=0, max_tokens=16)
    step(scheduler)
    add(scheduler, "b", 16, arrival_s=1)
    assert step(scheduler) == {"a": 1}  # "b" needs 5 blocks, 3 are left: it is not started
    assert scheduler.num_waiting == 1


def test_a_request_that_waits_for_room_starts_when_there_is_some() -> None:
    scheduler = make_scheduler(kv=make_kv_manager(num_blocks=6), prompt_tokens=64)
    first = add(scheduler, "a", 8, arrival_s=0)
    step(scheduler)
    add(scheduler, "b", 16, arrival_s=1)
    step(scheduler)
    scheduler.finish(first, FinishReason.LENGTH, 9)
    assert step(scheduler) == {"b": 16}


def test_a_single_request_may_fill_the_pool() -> None:
    scheduler = make_scheduler(kv=make_kv_manager(num_blocks=4), prompt_tokens=64)
    request = add(scheduler, "a", 12, max_tokens=5)
    assert step(scheduler) == {"a": 12}
    assert [step(scheduler) for _ in range(4)] == [{"a": 1}] * 4
    with pytest.raises(OutOfBlocksError):
        scheduler.schedule(0.0)  # admission would have refused a sixth token
    assert request.num_tokens == 17


def test_deadlines_are_seen_waiting_and_running() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    running = add(scheduler, "a", 4, deadline_s=5.0)
    waiting = add(scheduler, "b", 4, arrival_s=1, deadline_s=5.0)
    add(scheduler, "c", 4, arrival_s=2, deadline_s=6.0)
    step(scheduler)
    assert scheduler.expired(4.9) == []
    assert scheduler.expired(5.0) == [running, waiting]


def test_started_names_only_first_starts() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    first = add(scheduler, "a", 4)
    step(scheduler)
    assert scheduler.started == [first]
    step(scheduler)
    assert scheduler.started == []


def test_nothing_to_do_is_an_empty_batch() -> None:
    assert not make_scheduler().schedule(0.0)


def test_who_counts_on_a_block_that_was_not_filled_starts_again() -> None:
    scheduler = make_scheduler(prompt_tokens=8)
    waiting_for_it, in_step, other = (add(scheduler, name, 4) for name in "abc")
    assert step(scheduler) == {"a": 4, "b": 4}
    step(scheduler)
    batch = scheduler.schedule(0.0)
    shortened = ScheduledBatch(batch.requests[1:])
    (unfilled,) = batch.requests[0].block_ids[:1]
    also_in_step = batch.requests[1].block_ids[0]
    scheduler.start_again(shortened, frozenset({unfilled, also_in_step}))
    assert waiting_for_it.status is RequestStatus.WAITING
    assert waiting_for_it.num_computed_tokens == 0
    assert in_step.status is other.status is RequestStatus.RUNNING
    scheduler.check_integrity()
