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

from engine.model.assembly import ModelShape
from tests.equivalence import count_close_calls, generated, plain_logits
from tests.model_driver import ModelDriver
from tests.runner_driver import RunnerDriver, make_factory
from tests.tiny_models import (
    ARCHITECTURES,
    CONTEXT,
    KV_FORMATS,
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
def test_br_14_a_larger_context_setting_does_not_change_a_short_chat(architecture: str) -> None:
    model = model_of(longrope_config(architecture))
    prompt = prompts(seed=6, lengths=(20,))[0]
    outputs = []
    for max_model_len in (48, 64, 128, 256):
        factory = replace(make_factory(model), max_model_len=max_model_len)
        outputs.append(RunnerDriver(factory).logits(prompt))
    for output in outputs:
        assert torch.equal(output, outputs[0])
    assert torch.allclose(outputs[0], plain_logits(model)(prompt), atol=1e-4)


WINDOW = 24  # of the tiny PhiMoE


@pytest.mark.parametrize("length", [WINDOW - 1, WINDOW, WINDOW + 1, 4 * WINDOW])
def test_prompts_around_a_real_window_equal_generate(backend: str, length: int) -> None:
    model = tiny_model("phimoe", sliding_window=WINDOW)
    prompt = prompts(seed=7, lengths=(length,))[0]
    theirs = generated(model, prompt, NUM_TOKENS)
    for chunk in (1000, 10):
        ours = batched_replies(model, [prompt], chunk, backend=backend)[0]
        assert count_close_calls(plain_logits(model), prompt, ours, theirs) == 0


def test_a_window_changes_what_is_said(backend: str) -> None:
    prompt = prompts(seed=7, lengths=(4 * WINDOW,))[0]
    narrow, wide = (
        RunnerDriver(make_factory(tiny_model("phimoe", sliding_window=window), backend=backend))
        for window in (WINDOW, CONTEXT)
    )
    assert float((narrow.logits(prompt) - wide.logits(prompt)).abs().max()) > 0.1


@pytest.mark.parametrize("scheme", KV_FORMATS)
def test_blocks_from_before_the_window_are_reused_and_right(backend: str, scheme: str) -> None:
    model = tiny_model("phimoe", sliding_window=WINDOW)
    first, added = prompts(seed=8, lengths=(WINDOW - 1, 2 * WINDOW))
    driver = ModelDriver(model, scheme=scheme, backend=backend)
    reply = driver.reply("first", first, 12)
    follow_up = [*first, *reply, *added]
    second = driver.add("second", follow_up, 8)
    driver.run()
    assert second.num_cached_tokens == len(first) + 11
    cold = ModelDriver(model, scheme=scheme, backend=backend).reply("cold", follow_up, 8)
    logits_after = RunnerDriver(make_factory(model, scheme=scheme, backend=backend)).logits
    assert count_close_calls(logits_after, follow_up, second.output_token_ids, cold) == 0
    if scheme == "none":
        theirs = generated(model, follow_up, 8)
        assert count_close_calls(plain_logits(model), follow_up, cold, theirs) == 0


@pytest.mark.parametrize("architecture", ["llama", "phimoe"])
def test_a_head_dim_that_does_not_follow_from_the_hidden_size(
    architecture: str, backend: str
) -> None:
    model = tiny_model(architecture, head_dim=24)
    assert model.model.layers[0].self_attn.head_dim == 24
    assert ModelShape.of(model.config).head_dim == 24
    prompt = prompts(seed=9, lengths=(30,))[0]
    theirs = generated(model, prompt, NUM_TOKENS)
    ours = replies(model, [prompt], backend=backend)[0]
    assert count_close_calls(plain_logits(model), prompt, ours, theirs) == 0


@pytest.mark.parametrize("rope_type", ["linear", "yarn", "llama3", "dynamic"])
def test_rotary_tables_that_are_one_for_all_lengths_equal_generate(
    rope_type: str, backend: str
) -> None:
    rope = {
        "rope_type": rope_type,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    model = tiny_model("llama", rope_parameters=rope)
    texts = prompts(seed=10, lengths=(20, 100))  # both sides of the original length
    together = batched_replies(model, texts, 16, backend=backend)
    for prompt, ours in zip(texts, together, strict=True):
        theirs = generated(model, prompt, NUM_TOKENS)
        assert count_close_calls(plain_logits(model), prompt, ours, theirs) == 0
