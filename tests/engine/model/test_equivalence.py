"""Greedy replies equal `model.generate`; with quantized KV they equal the runner's own cold run.

A difference is allowed only where the two strongest logits lie within 1e-3, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from tests.equivalence import count_close_calls, generated, plain_logits
from tests.runner_driver import RunnerDriver, make_factory
from tests.tiny_models import (
    ARCHITECTURES,
    VOCAB_SIZE,
    longrope_config,
    model_of,
    tiny_model,
)

BACKENDS = ("reference", "numba")
QUANTIZED = ("int8", "k8v4", "int4")
NUM_TOKENS = 24


def prompts(seed: int, lengths: Sequence[int] = (37, 5, 64, 18)) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths
    ]


@pytest.fixture(params=ARCHITECTURES, scope="module")
def tiny(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


def replies(model: PreTrainedModel, texts: list[list[int]], **making: Any) -> list[list[int]]:
    """Each prompt alone, cold, its prompt in one step."""
    driver = RunnerDriver(make_factory(model, **making))
    return [driver.reply(prompt, NUM_TOKENS) for prompt in texts]


def batched_replies(
    model: PreTrainedModel, texts: list[list[int]], chunk: int, **making: Any
) -> list[list[int]]:
    driver = RunnerDriver(make_factory(model, **making))
    together = [driver.start(prompt) for prompt in texts]
    driver.generate(together, NUM_TOKENS, chunk)
    return [running.output for running in together]


def reused_reply(
    model: PreTrainedModel, prompt: list[int], added: list[int], **making: Any
) -> list[int]:
    """The second turn of a conversation, on the first one's blocks; its last token has no KV."""
    driver = RunnerDriver(make_factory(model, **making))
    first = driver.start(prompt, room=NUM_TOKENS + len(added))
    driver.generate([first], NUM_TOKENS)
    follow_up = [*first.request.token_ids, *added]
    second = driver.start(follow_up, after=first, num_cached=first.num_computed)
    driver.generate([second], NUM_TOKENS)
    return second.output


def test_replies_equal_generate_alone(tiny: PreTrainedModel, backend: str) -> None:
    texts = prompts(seed=1)
    close = 0
    for prompt, ours in zip(texts, replies(tiny, texts, backend=backend), strict=True):
        theirs = generated(tiny, prompt, NUM_TOKENS)
        close += count_close_calls(plain_logits(tiny), prompt, ours, theirs)
    assert close <= 1


@pytest.mark.parametrize("chunk", [1000, 16, 7])
def test_replies_equal_generate_in_a_batch(tiny: PreTrainedModel, backend: str, chunk: int) -> None:
    texts = prompts(seed=1)
    close = 0
    for prompt, ours in zip(
        texts, batched_replies(tiny, texts, chunk, backend=backend), strict=True
    ):
        theirs = generated(tiny, prompt, NUM_TOKENS)
        close += count_close_calls(plain_logits(tiny), prompt, ours, theirs)
    assert close <= 1


def test_a_second_turn_on_kept_blocks_equals_generate(tiny: PreTrainedModel, backend: str) -> None:
    prompt, added = prompts(seed=2, lengths=(37, 11))
    first = generated(tiny, prompt, NUM_TOKENS)
    follow_up = [*prompt, *first, *added]
    theirs = generated(tiny, follow_up, NUM_TOKENS)
    ours = reused_reply(tiny, prompt, added, backend=backend)
    assert count_close_calls(plain_logits(tiny), follow_up, ours, theirs) == 0


@pytest.mark.parametrize(
    ("scheme", "chunk"), [("int8", 1000), ("int8", 16), ("int8", 7), ("k8v4", 16), ("int4", 7)]
)
def test_quantized_replies_do_not_depend_on_the_batch(
    tiny: PreTrainedModel, backend: str, scheme: str, chunk: int
) -> None:
    texts = prompts(seed=3)
    making = {"scheme": scheme, "backend": backend}
    alone = replies(tiny, texts, **making)
    together = batched_replies(tiny, texts, chunk, **making)
    close = 0
    for prompt, one, batched in zip(texts, alone, together, strict=True):
        logits_after = RunnerDriver(make_factory(tiny, **making)).logits
        close += count_close_calls(logits_after, prompt, batched, one)
    assert close <= 1


@pytest.mark.parametrize("scheme", QUANTIZED)
def test_a_quantized_second_turn_equals_its_cold_run(
    tiny: PreTrainedModel, backend: str, scheme: str
) -> None:
    prompt, added = prompts(seed=4, lengths=(37, 11))
    making = {"scheme": scheme, "backend": backend}
    first = replies(tiny, [prompt], **making)[0]
    follow_up = [*prompt, *first, *added]
    cold = replies(tiny, [follow_up], **making)[0]
    warm = reused_reply(tiny, prompt, added, **making)
    logits_after = RunnerDriver(make_factory(tiny, **making)).logits
    assert count_close_calls(logits_after, follow_up, warm, cold) == 0


@pytest.mark.parametrize("architecture", ["phi3", "phimoe"])
def test_br_12_longrope_within_its_cap_equals_generate(architecture: str, backend: str) -> None:
    model = model_of(longrope_config(architecture))
    prompt = prompts(seed=5, lengths=(64 - NUM_TOKENS,))[0]
    theirs = generated(model, prompt, NUM_TOKENS)
    for chunk in (1000, 9):
        ours = batched_replies(model, [prompt], chunk, backend=backend)[0]
        assert count_close_calls(plain_logits(model), prompt, ours, theirs) == 0


@pytest.mark.parametrize("architecture", ["phi3", "phimoe"])
def test_br_14_a_larger_context_setting_does_not_change_a_short_chat(architecture: str) -> None:
    model = model_of(longrope_config(architecture))
    prompt = prompts(seed=6, lengths=(20,))[0]
    outputs = []
    for max_model_len in (48, 64):
        factory = replace(make_factory(model), max_model_len=max_model_len)
        outputs.append(RunnerDriver(factory).logits(prompt))
    assert torch.equal(outputs[0], outputs[1])
