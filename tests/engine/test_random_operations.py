"""Thousands of random operations: nothing leaks, and every output is what it would be alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from engine.batch import ScheduledBatch
from engine.request import FinishReason, Request
from tests.engine_factories import CoreDriver
from tests.fake_disk import FakeDisk, make_disk_tier

CONVERSATIONS = ("", "", "", "c1", "c2")


class RandomRun:
    """Submits, steps, aborts, times out and breaks steps at random, on a pool that is too small."""

    def __init__(self, seed: int, *, has_tiers: bool = False) -> None:
        self.random = random.Random(seed)
        self.disk = FakeDisk() if has_tiers else None
        self.driver = CoreDriver(
            num_host_slots=self.random.choice([3, 12, 60]) if has_tiers else 0,
            disk=make_disk_tier(self.disk, self.random.choice([20, 200])) if self.disk else None,
            num_blocks=self.random.choice([10, 16, 40]),
            prompt_tokens=self.random.choice([5, 16, 64]),
            max_num_seqs=self.random.choice([2, 4, 8]),
            original_max_len=(None, 12, 20)[seed % 3],
        )
        self.driver.runner.fault = self.fail_sometimes
        self.driver.runner.mover.fault = self.fail_to_move_sometimes
        self.requests: dict[str, Request] = {}
        self.histories: list[list[int]] = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 9, 9], [5]]
        self.broken: set[str] = set()

    def fail_sometimes(self, batch: ScheduledBatch) -> None:
        if self.random.random() < 0.01:
            raise RuntimeError("the step failed once")
        if any(item.request.request_id in self.broken for item in batch.requests):
            raise RuntimeError("a request fails always")

    def fail_to_move_sometimes(self, kind: str) -> None:
        if self.random.random() < 0.05:
            raise RuntimeError(f"a {kind} failed")

    def submit(self) -> None:
        request_id = f"r{len(self.requests)}"
        history = self.random.choice(self.histories)
        kept = history[: self.random.randint(1, min(len(history), 26))]
        prompt = kept + [self.random.randrange(256) for _ in range(self.random.randrange(6))]
        self.requests[request_id] = self.driver.add(
            request_id,
            prompt,
            max_tokens=self.random.randint(1, 8),
            user=self.random.choice([None, "ann", "bob"]),
            cache_salt=self.random.choice(["", "", "salt"]),
            conversation=self.random.choice(CONVERSATIONS),
            seed=self.random.choice([None, 1]),
            deadline_s=self.random.choice([None, self.driver.clock.now_s + 5.0]),
        )
        if self.random.random() < 0.02:
            self.broken.add(request_id)
        elif self.random.random() < 0.02:
            self.driver.runner.wrong_numbers.add(request_id)

    def abort(self) -> None:
        self.driver.abort(self.random.choice(list(self.requests)[-8:]))

    def forget(self) -> None:
        conversation = self.random.choice(CONVERSATIONS)
        for output in self.driver.core.forget([conversation]):
            self.driver.outputs[output.request_id].append(output)

    def step(self) -> None:
        if self.disk is not None:
            self.disk.work(self.random.randrange(6))
        self.driver.step(seconds=0.1)
        for request in self.requests.values():
            if request.finish_reason and self.random.random() < 0.02:
                self.histories = [*self.histories[-8:], request.token_ids]

    def operate(self, num_operations: int) -> None:
        self.submit()
        for _ in range(num_operations):
            operations = [self.submit, self.abort, self.step, self.forget]
            self.random.choices(operations, weights=[30, 10, 120, 2])[0]()
            self.driver.core.check_integrity()

    def check_outputs(self) -> None:
        for request_id, request in self.requests.items():
            tokens = self.driver.tokens(request_id)
            expected = self.driver.runner.expected_tokens(
                request.prompt_token_ids, max(1, len(tokens)), request.sampling.seed or 0
            )
            assert tokens == expected[: len(tokens)], request_id
            is_complete = self.driver.reason(request_id) is FinishReason.LENGTH
            assert (len(tokens) == request.max_tokens) == is_complete


@pytest.mark.parametrize("seed", range(16))
def test_br_03_with_tiers_outputs_are_what_they_would_be_alone(seed: int) -> None:
    run = RandomRun(seed, has_tiers=True)
    run.operate(400)
    while run.driver.core.has_work:
        run.step()
    run.driver.core.check_integrity()
    run.check_outputs()
    assert run.driver.kv.usage().num_in_use == 0


def test_random_runs_with_tiers_do_reach_what_they_are_for() -> None:
    runs = [RandomRun(seed, has_tiers=True) for seed in range(8)]
    for run in runs:
        run.operate(400)
    requests = [request for run in runs for request in run.requests.values()]
    assert sum(request.num_host_tokens for request in requests) > 100
    assert sum(request.num_disk_tokens for request in requests) > 100
    kinds = {kind for run in runs for kind, _ in run.driver.runner.mover.calls}
    assert kinds == {"save", "load", "spill", "fill"}


@pytest.mark.parametrize("seed", range(16))
def test_br_03_random_operations_leave_no_trace_in_outputs_or_pool(seed: int) -> None:
    run = RandomRun(seed)
    run.operate(400)
    run.driver.run()
    run.check_outputs()
    usage = run.driver.kv.usage()
    assert usage.num_in_use == 0
    assert usage.num_free + usage.num_cached == usage.num_blocks


def test_random_runs_do_reach_what_they_are_for() -> None:
    runs = [RandomRun(seed) for seed in range(12)]
    for run in runs:
        run.operate(400)
    assert sum(run.driver.scheduler.num_preemptions for run in runs) > 10
    assert sum(run.driver.kv.usage().num_evicted_total for run in runs) > 100
    assert sum(bool(batch.block_copies) for run in runs for batch in run.driver.runner.batches) > 5
    cached = sum(r.num_cached_tokens for run in runs for r in run.requests.values())
    assert cached > 500
    ended = Counter(run.driver.reason(name) for run in runs for name in run.requests)
    assert ended[FinishReason.LENGTH] > 100
    assert ended[FinishReason.ABORT] > 10
    requests = [request for run in runs for request in run.requests.values()]
    assert sum(request.num_recomputed_tokens > 0 for request in requests) > 20
