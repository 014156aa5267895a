"""The bundled model through the whole EngineCore: scheduler, prefix cache, runner, sampler.

Greedy replies equal `model.generate`, or with int8 KV the core's own cold single run, except where
the two strongest logits lie within 1e-3, which is counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
import torch

from engine.admission import Admission
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.model.assembly import assemble
from engine.request import GenerationRequest
from engine.sampling_params import SamplingParams
from engine.serving import Serving, make_serving
from tests.conftest import BundledModel
from tests.equivalence import count_close_calls, generated, plain_logits
from tests.runner_driver import RunnerDriver, make_factory

NUM_TOKENS = 16
QUESTIONS = (
    "What is the capital of Chile?",
    "Write one sentence about the sea, and one about the mountains behind it.",
    "List three colours.",
)
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS)


class Conversations:
    """A core on the bundled model; small steps, so that prompts are computed in chunks."""

    def __init__(self, bundled: BundledModel, scheme: str, backend: str) -> None:
        config = EngineConfig(
            kv_cache_dtype=scheme,
            attention_backend=backend,
            max_model_len=512,
            num_gpu_blocks_override=128,
            max_num_seqs=8,
            max_num_batched_tokens=24,
        )
        self._serving: Serving = make_serving(
            config, assemble(config, *bundled, lambda sentence: None)
        )
        info = self._serving.info
        self._admission = Admission(config, info, info.num_blocks * info.block_size)
        self._num_asked = 0

    def ask(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Replies to prompts that run together."""
        core: EngineCore = self._serving.core
        replies: dict[str, list[int]] = {}
        for prompt in prompts:
            self._num_asked += 1
            request = GenerationRequest(
                request_id=f"r{self._num_asked}", prompt_token_ids=tuple(prompt), sampling=GREEDY
            )
            core.add(self._admission.check(request, time.monotonic()))
            replies[request.request_id] = []
        while core.has_work:
            for output in core.step():
                replies[output.request_id].extend(output.token_ids)
                assert output.error is None
        core.check_integrity()
        return list(replies.values())

    @property
    def num_cached_tokens(self) -> int:
        return self._serving.core.stats().num_cached_tokens_total


def first_turns(bundled: BundledModel) -> list[list[int]]:
    return [
        bundled.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
        )
        for question in QUESTIONS
    ]


def second_turn(bundled: BundledModel, prompt: list[int], reply: list[int]) -> list[int]:
    added = "\n<|im_start|>user\nAnd why?<|im_end|>\n<|im_start|>assistant\n"
    return [*prompt, *reply, *bundled.tokenizer.encode(added, add_special_tokens=False)]


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_replies_equal_generate_batched_alone_cold_and_reused(
    bundled_model: BundledModel, backend: str
) -> None:
    model = bundled_model.model
    prompts = first_turns(bundled_model)
    conversations = Conversations(bundled_model, "none", backend)
    replies = conversations.ask(prompts)
    later_prompt = second_turn(bundled_model, prompts[1], replies[1])
    cached_before = conversations.num_cached_tokens
    (later,) = conversations.ask([later_prompt])
    assert conversations.num_cached_tokens - cached_before >= len(prompts[1]) + NUM_TOKENS - 1
    (alone,) = Conversations(bundled_model, "none", backend).ask(prompts[:1])
    compared = [*zip(prompts, replies, strict=True), (later_prompt, later), (prompts[0], alone)]
    close = sum(
        count_close_calls(plain_logits(model), prompt, ours, generated(model, prompt, NUM_TOKENS))
        for prompt, ours in compared
    )
    assert close <= 1


def test_int8_replies_equal_their_own_cold_single_run(bundled_model: BundledModel) -> None:
    prompts = first_turns(bundled_model)
    conversations = Conversations(bundled_model, "int8", "numba")
    replies = conversations.ask(prompts)
    later_prompt = second_turn(bundled_model, prompts[1], replies[1])
    replies += conversations.ask([later_prompt])
    driver = RunnerDriver(make_factory(bundled_model.model, scheme="int8", backend="numba"))
    cold = [
        driver.reply(prompt, NUM_TOKENS)[: len(reply)]
        for prompt, reply in zip([*prompts, later_prompt], replies, strict=True)
    ]
    assert replies == cold


@pytest.mark.parametrize(
    ("scheme", "chunk"),
    [("int8", 1), ("int8", 2), ("int8", 3), ("int8", 13), ("k8v4", 3), ("int4", 13)],
)
def test_a_hit_equals_a_miss_bit_for_bit(
    bundled_model: BundledModel, scheme: str, chunk: int
) -> None:
    """With quantized KV a rounding error would grow to a tenth in the logits, or more."""
    token_ids = first_turns(bundled_model)[1]
    driver = RunnerDriver(make_factory(bundled_model.model, scheme=scheme, backend="numba"))
    cold = driver.logits(token_ids)
    running = driver.start(token_ids[:-1])
    while running.num_computed < len(token_ids) - 1:
        driver.step((running, min(chunk, len(token_ids) - 1 - running.num_computed)))
        running.output.clear()
    warm = driver.logits(token_ids, after=running, num_cached=running.num_computed)
    assert torch.equal(warm, cold)
