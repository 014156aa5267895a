from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from engine.token_budget import TokenBudget, chunk_length, split_budget

TARGET_S = 0.3


class Machine:
    """Steps take base + per_token * tokens, and some noise."""

    def __init__(self, base_s: float, per_token_s: float, noise: float = 0.0) -> None:
        self.base_s = base_s
        self.per_token_s = per_token_s
        self.noise = noise
        self.random = random.Random(0)

    def step_s(self, num_prompt_tokens: int) -> float:
        exact_s = self.base_s + self.per_token_s * num_prompt_tokens
        return exact_s * self.random.uniform(1 - self.noise, 1 + self.noise)

    def run(self, budget: TokenBudget, num_steps: int, num_decoding: int = 4) -> list[float]:
        """Prompt work without end; how long the steps took."""
        return list(self._steps(budget, num_steps, lambda: budget.prompt_tokens(num_decoding)))

    def decode(self, budget: TokenBudget, num_steps: int) -> list[float]:
        return list(self._steps(budget, num_steps, lambda: 0))

    def _steps(
        self, budget: TokenBudget, num_steps: int, num_tokens: Callable[[], int]
    ) -> Iterator[float]:
        for _ in range(num_steps):
            num_prompt_tokens = num_tokens()
            step_s = self.step_s(num_prompt_tokens)
            budget.observe(num_prompt_tokens=num_prompt_tokens, duration_s=step_s)
            yield step_s


def make_budget(**values: float) -> TokenBudget:
    return TokenBudget(target_s=TARGET_S, max_tokens=1024, **values)


@pytest.mark.parametrize(
    ("base_s", "per_token_s"), [(0.05, 0.0005), (0.05, 0.002), (0.15, 0.001), (0.01, 0.0003)]
)
def test_steps_come_close_to_the_target_within_a_few(base_s: float, per_token_s: float) -> None:
    budget, machine = make_budget(), Machine(base_s, per_token_s)
    machine.decode(budget, 5)
    durations = machine.run(budget, 8)
    assert max(durations[3:]) <= TARGET_S
    assert min(durations[3:]) >= 0.75 * TARGET_S


def test_br_37_gaps_of_who_decodes_stay_near_the_target_with_noise_and_long_prompts() -> None:
    budget, machine = make_budget(), Machine(0.06, 0.0015, noise=0.15)
    machine.decode(budget, 20)
    durations = machine.run(budget, 300)
    assert max(durations) <= 1.4 * TARGET_S
    assert sum(durations) / len(durations) >= 0.7 * TARGET_S


def test_the_cost_of_a_token_may_grow_while_a_prompt_gets_longer() -> None:
    budget, machine = make_budget(), Machine(0.06, 0.0005)
    durations: list[float] = []
    for _ in range(60):
        durations += machine.run(budget, 1)
        machine.per_token_s *= 1.03
    assert max(durations) <= 1.1 * TARGET_S


def test_an_outlier_is_forgotten_within_a_few_steps() -> None:
    budget, machine = make_budget(), Machine(0.05, 0.001)
    machine.decode(budget, 5)
    machine.run(budget, 10)
    before = budget.prompt_tokens(4)
    budget.observe(num_prompt_tokens=before, duration_s=30.0)
    assert before / 2 <= budget.prompt_tokens(4) < before
    machine.run(budget, 4)
    assert budget.prompt_tokens(4) == pytest.approx(before, rel=0.1)


def test_a_slow_first_step_does_not_matter_for_long() -> None:
    budget, machine = make_budget(), Machine(0.05, 0.001)
    budget.observe(num_prompt_tokens=128, duration_s=20.0)
    assert budget.prompt_tokens(4) == 32
    machine.run(budget, 12)
    assert budget.prompt_tokens(4) >= 180


def test_decoding_that_got_cheaper_frees_room_for_prompts() -> None:
    budget, machine = make_budget(), Machine(0.4, 0.001)
    machine.decode(budget, 5)
    machine.run(budget, 5)
    assert budget.prompt_tokens(32) == 32  # decoding alone misses the target
    machine.base_s = 0.05
    durations = machine.run(budget, 10)
    assert max(durations) <= 1.1 * TARGET_S
    assert durations[-1] >= 0.75 * TARGET_S


def test_the_cost_of_decoding_is_learnt_again_after_it_seemed_to_be_nothing() -> None:
    machine = Machine(base_s=0.08, per_token_s=0.001)
    budget = TokenBudget(target_s=TARGET_S, max_tokens=2048)
    machine.decode(budget, 5)
    machine.run(budget, 1)
    budget.observe(num_prompt_tokens=128, duration_s=0.07)  # cheaper than all its tokens alone
    machine.decode(budget, 5)
    assert machine.run(budget, 1) < [TARGET_S]


def test_a_machine_that_is_never_fast_enough_still_makes_progress() -> None:
    budget, machine = make_budget(), Machine(1.0, 0.5)
    machine.run(budget, 20)
    assert budget.prompt_tokens(4) == 32


def test_nobody_decoding_allows_twice_the_target() -> None:
    budget, machine = make_budget(), Machine(0.0, 0.001)
    durations = machine.run(budget, 20, num_decoding=0)
    assert durations[-1] == pytest.approx(2 * 0.9 * TARGET_S, rel=0.02)


def test_the_step_never_exceeds_its_maximum() -> None:
    budget = make_budget()
    Machine(0.0, 1e-6).run(budget, 10)
    assert budget.prompt_tokens(0) == 1024
    assert budget.prompt_tokens(24) == 1000
    assert budget.prompt_tokens(1010) == 14


@pytest.mark.parametrize(
    ("remaining", "budget", "shares"),
    [
        ([], 64, []),
        ([10], 64, [10]),
        ([100], 64, [64]),
        ([100, 100], 64, [32, 32]),
        ([100, 10], 64, [54, 10]),  # leftovers go back to the head
        ([10, 100], 64, [10, 54]),
        ([1000, 50, 20, 30], 64, [32, 0, 20, 12]),  # the shortest first
        ([1000, 1, 1, 1], 64, [61, 1, 1, 1]),
        ([7, 7], 1, [1, 0]),
        ([5, 5], 0, [0, 0]),
    ],
)
def test_split(remaining: list[int], budget: int, shares: list[int]) -> None:
    assert split_budget(remaining, budget) == shares


def test_split_uses_all_there_is() -> None:
    generator = random.Random(1)
    for _ in range(300):
        remaining = [generator.randint(1, 200) for _ in range(generator.randint(1, 8))]
        budget = generator.randint(1, 300)
        shares = split_budget(remaining, budget)
        assert sum(shares) == min(budget, sum(remaining))
        assert all(0 <= share <= wanted for share, wanted in zip(shares, remaining, strict=True))
        assert shares[0] >= min(remaining[0], (budget + 1) // 2)


@pytest.mark.parametrize(
    ("start", "remaining", "share", "length"),
    [(0, 10, 10, 10), (0, 100, 10, 8), (0, 100, 3, 0), (6, 100, 3, 2), (6, 100, 1, 0)],
)
def test_a_chunk_ends_on_a_block_boundary_unless_it_is_the_last(
    start: int, remaining: int, share: int, length: int
) -> None:
    assert chunk_length(start, remaining, share, block_size=4) == length
