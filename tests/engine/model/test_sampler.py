from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from engine.model.random_streams import derive_stream_seed, uniform
from engine.model.sampler import LOGPROB_FLOOR, Sampler, SamplerRow
from engine.sampling_params import SamplingParams
from tests.full_sort import kept_by_full_sort

VOCAB_SIZE = 1000


class AllowOnly:
    def __init__(self, *token_ids: int) -> None:
        self._token_ids = token_ids

    def allowed_token_ids(self, output_token_ids: Sequence[int]) -> Sequence[int] | None:
        return self._token_ids


def make_logits(num_rows: int, seed: int = 0, spread: float = 2.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, VOCAB_SIZE, generator=generator) * spread


def make_row(
    request_id: str = "r",
    *,
    prompt: Sequence[int] = (1, 2, 3),
    output: Sequence[int] = (),
    seed: int = 7,
    **sampling: object,
) -> SamplerRow:
    return SamplerRow(request_id, SamplingParams(**sampling), prompt, output, seed)


def sample_one(logits: torch.Tensor, row: SamplerRow) -> int:
    result = Sampler(VOCAB_SIZE).sample(logits.reshape(1, -1), [row])
    assert result.failed == {}
    return result.sampled[row.request_id].token_id


@pytest.mark.parametrize(
    "filters", [{}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}, {"temperature": 2.0}]
)
def test_draws_follow_the_distribution(filters: dict[str, float]) -> None:
    logits = make_logits(1)[:, :12]
    row = make_row(**filters)
    expected = kept_by_full_sort(logits.numpy()[0], row.sampling)
    num_draws = 6000
    sampler = Sampler(12)
    counts = dict.fromkeys(expected, 0)
    for position in range(num_draws):
        drawn = sampler.sample(logits, [row._replace(output_token_ids=range(position))])
        counts[drawn.sampled["r"].token_id] += 1  # KeyError: a token that was filtered out
    chi_square = sum(
        (counts[token_id] - num_draws * share) ** 2 / (num_draws * share)
        for token_id, share in expected.items()
    )
    degrees = len(expected) - 1
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees) + 4


def test_a_draw_over_the_whole_vocabulary_is_the_inverse_of_the_distribution() -> None:
    logits = make_logits(1)
    cumulative = torch.softmax(logits[0].double(), dim=0).cumsum(0).numpy()
    for position in range(300):
        expected = int(np.searchsorted(cumulative, uniform(7, position), side="right"))
        assert sample_one(logits, make_row(output=range(position))) == expected


def test_tokens_of_no_weight_are_never_drawn() -> None:
    logits = torch.full((1, VOCAB_SIZE), -math.inf)
    logits[0, 700:703] = 0.0
    drawn = {sample_one(logits, make_row(output=range(position))) for position in range(60)}
    assert drawn == {700, 701, 702}


MIXED_SAMPLING: tuple[dict[str, object], ...] = (
    {"temperature": 0.8},
    {"temperature": 0},
    {"top_k": 40, "top_p": 0.95, "logprobs": 3},
    {"frequency_penalty": 1.5, "presence_penalty": -2.0, "temperature": 1.3},
    {"repetition_penalty": 1.3, "temperature": 0},
    {"logit_bias": {5: 100.0}},
    {"min_p": 0.05, "constraint": AllowOnly(4, 9, 400)},
    {"temperature": 2.0, "top_p": 0.999},
)


def test_a_row_gives_the_same_bits_alone_and_beside_others() -> None:
    logits = make_logits(len(MIXED_SAMPLING))
    rows = [
        make_row(str(index), output=range(index * 3), seed=index, **sampling)
        for index, sampling in enumerate(MIXED_SAMPLING)
    ]
    together = Sampler(VOCAB_SIZE).sample(logits, rows)
    reversed_order = Sampler(VOCAB_SIZE).sample(logits.flip(0), rows[::-1])
    assert together.sampled == reversed_order.sampled
    for index, row in enumerate(rows):
        alone = Sampler(VOCAB_SIZE).sample(logits[index : index + 1].clone(), [row])
        assert alone.sampled[row.request_id] == together.sampled[row.request_id]


def run_stream(neighbours: list[SamplerRow], first_step: int = 0) -> list[int]:
    """Sixteen tokens of a request with seed 42; the neighbours join at `first_step`."""
    output: list[int] = []
    for step in range(16):
        rows = [make_row("seeded", output=output, seed=42, temperature=0.8)]
        rows = neighbours + rows if step >= first_step else rows
        logits = make_logits(1, seed=step).expand(len(rows), -1)
        output.append(Sampler(VOCAB_SIZE).sample(logits, rows).sampled["seeded"].token_id)
    return output


def test_br_24_a_seed_gives_the_same_tokens_whoever_is_beside() -> None:
    alone = run_stream([])
    assert run_stream([make_row("unseeded", seed=derive_stream_seed(0, "unseeded"))]) == alone
    assert run_stream([make_row("other", seed=7)]) == alone
    assert run_stream([make_row(str(n), seed=n) for n in range(7)]) == alone
    assert run_stream([make_row("late", seed=3)], first_step=5) == alone


def test_br_24_equal_prompts_without_a_seed_do_not_get_equal_tokens() -> None:
    logits = make_logits(1, spread=0.5).expand(16, -1)
    rows = [make_row(str(n), seed=derive_stream_seed(0, str(n))) for n in range(16)]
    sampled = Sampler(VOCAB_SIZE).sample(logits, rows).sampled
    assert len({token.token_id for token in sampled.values()}) > 8


def test_br_26_penalties_count_their_own_request_only() -> None:
    logits = make_logits(1).expand(2, -1)
    long = make_row("long", prompt=range(500), output=list(range(400)), frequency_penalty=1.05)
    short = make_row("short", output=[4], temperature=1.0)
    together = Sampler(VOCAB_SIZE).sample(logits, [long, short])
    assert together.sampled["short"].token_id == sample_one(logits[:1], short)


def test_br_26_repetition_counts_the_prompt_and_the_others_do_not() -> None:
    logits = torch.zeros(VOCAB_SIZE)
    logits[10], logits[11], logits[12] = 3.0, 2.5, -0.5
    prompt = [10, 10, 10]
    greedy = {"temperature": 0, "prompt": prompt}
    assert sample_one(logits, make_row(**greedy, presence_penalty=2.0)) == 10
    assert sample_one(logits, make_row(**greedy, frequency_penalty=2.0)) == 10
    assert sample_one(logits, make_row(**greedy, repetition_penalty=1.5)) == 11
    assert sample_one(logits, make_row(**greedy, output=[10], presence_penalty=0.6)) == 11
    once = make_row(**greedy, output=[10], frequency_penalty=0.3)
    assert sample_one(logits, once) == 10
    assert sample_one(logits, once._replace(output_token_ids=[10, 10])) == 11


def test_br_26_repetition_lowers_negative_scores_too() -> None:
    logits = torch.full((VOCAB_SIZE,), -9.0)
    logits[10], logits[11] = -1.0, -1.2
    row = make_row(prompt=[10], temperature=0, repetition_penalty=1.5)
    assert sample_one(logits, row) == 11


@pytest.mark.parametrize(
    "extreme",
    [
        {"repetition_penalty": 1e-300},
        {"repetition_penalty": 10.0},
        {"temperature": 5e-324},
        {"temperature": 2},
        {"top_p": 5e-324},
        {"top_k": 10**9},
        {"top_k": 1},
        {"min_p": 1},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"logit_bias": dict.fromkeys(range(1024), 100.0)},
        {"temperature": 1e-4, "top_p": 0.5, "top_k": 1024, "min_p": 1e-300},
    ],
)
def test_br_28_the_extremes_that_are_allowed_work(extreme: dict[str, object]) -> None:
    row = make_row(output=[5, 5, 6], logprobs=20, **extreme)
    for spread in (0.0, 1.0, 5e37):
        result = Sampler(VOCAB_SIZE).sample(make_logits(1, spread=spread), [row])
        assert 0 <= result.sampled["r"].token_id < VOCAB_SIZE


def test_br_29_padding_of_the_vocabulary_is_never_chosen() -> None:
    logits = torch.zeros(4, VOCAB_SIZE + 24)
    logits[:, VOCAB_SIZE:] = 50.0
    logits[0, -1] = math.nan
    biased = {VOCAB_SIZE + 3: 100.0, 17: 90.0}
    rows = [
        make_row("greedy", temperature=0),
        make_row("drawn", temperature=2.0),
        make_row("biased", logit_bias=biased, temperature=0),
        make_row("constrained", constraint=AllowOnly(VOCAB_SIZE + 3, -1, 21)),
    ]
    sampled = Sampler(VOCAB_SIZE).sample(logits, rows).sampled
    chosen = {name: token.token_id for name, token in sampled.items()}
    assert chosen.pop("drawn") < VOCAB_SIZE
    assert chosen == {"greedy": 0, "biased": 17, "constrained": 21}


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-9])
def test_br_30_temperature_zero_is_the_strongest_token(temperature: float) -> None:
    logits = make_logits(1)
    strongest = int(logits.argmax())
    assert sample_one(logits, make_row(temperature=temperature)) == strongest
    tied = logits.clone()
    tied[0, 3] = tied[0, 700] = 99.0
    assert sample_one(tied, make_row(temperature=temperature)) == 3
    assert sample_one(tied, make_row(temperature=1, top_k=1)) == 3


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_br_32_numbers_gone_wrong_end_that_request_only(broken: float, temperature: float) -> None:
    logits = make_logits(4)
    rows = [make_row(str(n), temperature=temperature, top_p=0.9) for n in range(4)]
    control = Sampler(VOCAB_SIZE).sample(logits, rows).sampled
    logits[2, 500] = broken
    result = Sampler(VOCAB_SIZE).sample(logits, rows)
    assert list(result.failed) == ["2"]
    assert "not a number" in result.failed["2"]
    assert result.sampled == {name: control[name] for name in ("0", "1", "3")}


def test_br_32_a_constraint_that_leaves_nothing_ends_that_request_only() -> None:
    rows = [make_row("stuck", constraint=AllowOnly()), make_row("fine", temperature=0)]
    result = Sampler(VOCAB_SIZE).sample(make_logits(2), rows)
    assert list(result.failed) == ["stuck"]
    assert "constraint" in result.failed["stuck"]
    assert list(result.sampled) == ["fine"]


def test_br_50_logprobs_are_of_the_unmodified_scores_and_always_finite() -> None:
    logits = make_logits(1)
    logits[0, 600:] = -math.inf
    row = make_row(temperature=1e-4, top_k=1, logprobs=20, logit_bias={800: 100.0, 30: 100.0})
    logprobs = Sampler(VOCAB_SIZE).sample(logits, [row]).sampled["r"].logprobs
    assert logprobs is not None
    expected = torch.log_softmax(logits[0].double(), dim=0)
    assert logprobs.chosen.token_id == 30
    values, ids = expected.topk(20)
    assert [top.token_id for top in logprobs.top] == ids.tolist()
    np.testing.assert_allclose([top.logprob for top in logprobs.top], values, atol=1e-6)
    assert logprobs.chosen.logprob == pytest.approx(float(expected[30]), abs=1e-6)
    json.dumps(logprobs, allow_nan=False)


def test_br_50_a_token_that_the_model_forbids_gets_the_floor() -> None:
    logits = torch.full((1, VOCAB_SIZE), -math.inf)
    logits[0, 5] = 1.0
    token = Sampler(VOCAB_SIZE).sample(logits, [make_row(logprobs=2)]).sampled["r"]
    assert token.logprobs is not None
    assert token.logprobs.chosen == (5, 0.0)
    assert [top.logprob for top in token.logprobs.top] == [0.0, LOGPROB_FLOOR]


def test_logprobs_zero_reports_the_chosen_token_alone() -> None:
    token = Sampler(VOCAB_SIZE).sample(make_logits(1), [make_row(logprobs=0)]).sampled["r"]
    assert token.logprobs is not None
    assert token.logprobs.chosen.token_id == token.token_id
    assert token.logprobs.top == ()


def test_sixteen_bit_logits_and_no_rows() -> None:
    assert Sampler(VOCAB_SIZE).sample(torch.empty(0, VOCAB_SIZE), []).sampled == {}
    logits = make_logits(1).bfloat16()
    greedy = Sampler(VOCAB_SIZE).sample(logits, [make_row(temperature=0)])
    assert greedy.sampled["r"].token_id == int(logits.float().argmax())
