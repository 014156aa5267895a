"""LongRoPE through scheduler, cache and model: each sampled token has the logits that computing its
whole sequence anew, alone, under the right table gives.

Sequences of more than 64 tokens are long ones; blocks hold 8 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from transformers import PreTrainedModel

from engine.request import Request
from engine.rope_regimes import LONG, SHORT
from tests.equivalence import count_close_calls, generated, plain_logits, recomputed
from tests.model_driver import ModelDriver
from tests.runner_driver import RunnerDriver, make_factory
from tests.tiny_models import KV_FORMATS, VOCAB_SIZE, longrope_config, model_of

# fp32 sums in another order: up to 3e-5 of logits around 5 were seen. Another table makes 0.5.
TOLERANCE = 2e-4


@pytest.fixture(params=["phi3", "phi4-mini", "phimoe"], scope="module")
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    if request.param == "phi4-mini":
        return model_of(longrope_config("phi3", partial_rotary_factor=0.75))
    return model_of(longrope_config(request.param))


@pytest.fixture(params=KV_FORMATS)
def scheme(request: pytest.FixtureRequest) -> str:
    return request.param


def tokens(seed: int, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB_SIZE, (count,), generator=generator).tolist()


def right_logits(model: PreTrainedModel, scheme: str) -> Callable[[Sequence[int]], torch.Tensor]:
    """Of a whole sequence in one step. With quantized KV that is the runner's own cold run."""
    if scheme == "none":
        return plain_logits(model)
    factory = make_factory(model, scheme=scheme, backend="numba")
    return lambda token_ids: RunnerDriver(factory).logits(token_ids)


def check(driver: ModelDriver, model: PreTrainedModel, scheme: str, *requests: Request) -> None:
    logits_after = right_logits(model, scheme)
    for request in requests:
        rows = driver.logits[request.request_id]
        assert len(rows) == len(request.output_token_ids) > 0
        for count, row in enumerate(rows):
            expected = logits_after([*request.prompt_token_ids, *request.output_token_ids[:count]])
            difference = float((row - expected).abs().max())
            assert difference <= TOLERANCE, f"{request.request_id}, token {count}: {difference:.2g}"


@pytest.fixture
def driver(model: PreTrainedModel, scheme: str) -> ModelDriver:
    return ModelDriver(model, scheme=scheme, backend="numba", prompt_tokens=24)


@pytest.mark.parametrize("length", [62, 64, 65, 130])
def test_br_12_prompts_on_both_sides_are_right_in_any_chunks(
    driver: ModelDriver, model: PreTrainedModel, scheme: str, length: int
) -> None:
    request = driver.add("a", tokens(1, length), max_tokens=2)
    driver.run()
    check(driver, model, scheme, request)


def test_br_12_a_reply_that_crosses_goes_on_as_if_it_had_always_been_long(
    driver: ModelDriver, model: PreTrainedModel, scheme: str
) -> None:
    request = driver.add("a", tokens(2, 60), max_tokens=10)
    driver.run()
    check(driver, model, scheme, request)
    assert request.num_recomputed_tokens == 64


@pytest.mark.parametrize("architecture", ["phi3", "phimoe"])
def test_br_12_replies_equal_generate_which_computes_anew_at_the_switch(architecture: str) -> None:
    model = model_of(longrope_config(architecture))
    prompt = tokens(3, 56)
    ours = ModelDriver(model, backend="numba").reply("a", prompt, 24)
    assert count_close_calls(plain_logits(model), prompt, ours, recomputed(model, prompt, 24)) == 0
    if architecture == "phi3":  # PhiMoE's generate computes nothing anew
        theirs = generated(model, prompt, 24)
        assert count_close_calls(plain_logits(model), prompt, ours, theirs) == 0


def test_br_12_the_second_turn_of_a_chat_may_cross(
    driver: ModelDriver, model: PreTrainedModel, scheme: str
) -> None:
    first = driver.add("first", tokens(4, 40), max_tokens=8)
    driver.run()
    second = driver.add("second", [*first.token_ids, *tokens(5, 20)], max_tokens=3)
    driver.run()
    third = driver.add("third", [*second.token_ids, *tokens(6, 5)], max_tokens=3)
    driver.run()
    check(driver, model, scheme, first, second, third)
    assert [request.rope_regime for request in (first, second, third)] == [SHORT, LONG, LONG]
    # nothing of the short turn serves the long one, whose own blocks serve the next
    assert (second.num_cached_tokens, third.num_cached_tokens) == (0, 70)


@pytest.mark.parametrize("lengths", [(48, 90, 50), (90, 48, 91)])
def test_br_12_a_prefix_is_reused_by_sequences_of_its_own_regime_only(
    driver: ModelDriver, model: PreTrainedModel, scheme: str, lengths: tuple[int, ...]
) -> None:
    shared = tokens(7, 40)
    requests = []
    for index, length in enumerate(lengths):
        prompt = [*shared, *tokens(8 + index, length - len(shared))]
        requests.append(driver.add(f"r{index}", prompt, max_tokens=3))
        driver.run()
    check(driver, model, scheme, *requests)
    assert [request.num_cached_tokens for request in requests] == [0, 0, 40]


def test_br_12_four_at_once_on_both_sides(
    driver: ModelDriver, model: PreTrainedModel, scheme: str
) -> None:
    requests = [
        driver.add(f"r{length}", tokens(length, length), max_tokens=6)
        for length in (61, 20, 90, 64)
    ]
    driver.run()
    check(driver, model, scheme, *requests)


def test_br_12_neighbours_get_their_token_in_every_step_of_a_crossing(
    model: PreTrainedModel,
) -> None:
    driver = ModelDriver(model, backend="numba", prompt_tokens=16)
    neighbour = driver.add("neighbour", tokens(20, 10), max_tokens=30)
    crossing = driver.add("crossing", tokens(21, 60), max_tokens=8)
    driver.run()
    check(driver, model, "none", neighbour, crossing)
    both = [batch for batch in driver.batches if len(batch.requests) == 2]
    assert all(batch.num_prompt_tokens <= 16 for batch in driver.batches)
    assert sum(batch.num_prompt_tokens > 0 for batch in both) >= 6  # 60 and 65 tokens, by 16
    first_decode = next(i for i, batch in enumerate(driver.batches) if batch.requests[0].is_decode)
    for batch in driver.batches[first_decode : first_decode + 28]:
        assert "neighbour" in {item.request.request_id for item in batch.requests}


def test_br_12_a_crossing_in_a_pool_that_is_full(model: PreTrainedModel) -> None:
    driver = ModelDriver(model, backend="numba", num_blocks=16)
    requests = [driver.add(name, tokens(30, 58), max_tokens=12) for name in ("a", "b")]
    driver.run()
    check(driver, model, "none", *requests)
    assert requests[0].num_preemptions == 0
