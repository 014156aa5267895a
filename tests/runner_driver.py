"""Drives a ModelRunner without a scheduler: block tables by hand, chunks as a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from engine.batch import BlockCopy, ScheduledBatch, ScheduledRequest
from engine.kv.schemes import kv_scheme
from engine.model.assembly import RunnerFactory, row_multiple
from engine.model.rope import long_rope_length
from engine.model.runner import ModelRunner
from engine.request import Request
from engine.rope_regimes import RopeRegimes
from engine.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


@dataclass(eq=False)
class Running:
    request: Request
    block_ids: tuple[int, ...]
    num_computed: int

    @property
    def output(self) -> list[int]:
        return self.request.output_token_ids


def make_request(
    request_id: str, token_ids: Sequence[int], sampling: SamplingParams = GREEDY
) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(token_ids),
        sampling=sampling,
        max_tokens=1000,
        user=None,
        cache_salt="",
        arrival_s=0.0,
        deadline_s=None,
    )


def make_factory(
    model: PreTrainedModel,
    *,
    scheme: str = "none",
    backend: str = "reference",
    vocab_size: int | None = None,
    block_size: int = 8,
) -> RunnerFactory:
    return RunnerFactory(
        model=model,
        scheme=kv_scheme(scheme),
        block_size=block_size,
        backend_name=backend,
        max_model_len=model.config.max_position_embeddings,
        vocab_size=vocab_size or model.config.vocab_size,
        seed=0,
        row_multiple=row_multiple(model, kv_scheme(scheme)),
    )


class RunnerDriver:
    """Gives out blocks in descending order, so that neighbours in a table are none in memory."""

    def __init__(self, factory: RunnerFactory, num_blocks: int = 64) -> None:
        self.storage = factory.make_storage(num_blocks)
        self.runner: ModelRunner = factory.make_runner(self.storage)
        self._block_size = factory.block_size
        self._free = list(range(num_blocks))
        self._rope = RopeRegimes(long_rope_length(factory.model.config))
        self._num_started = 0

    def start(
        self,
        token_ids: Sequence[int],
        *,
        room: int = 32,
        after: Running | None = None,
        num_cached: int = 0,
        sampling: SamplingParams = GREEDY,
    ) -> Running:
        """A request, the first `num_cached` positions of which are those of `after`."""
        num_needed = -(-(len(token_ids) + room) // self._block_size)
        shared = after.block_ids[: -(-num_cached // self._block_size)] if after else ()
        own = tuple(self._free.pop() for _ in range(num_needed - len(shared)))
        self._num_started += 1
        request = make_request(f"request-{self._num_started}", token_ids, sampling)
        request.rope_regime = self._rope.regime(len(token_ids))
        return Running(request, shared + own, num_cached)

    def step(self, *parts: tuple[Running, int], copies: tuple[BlockCopy, ...] = ()) -> None:
        """Compute that many next positions of each; append a token where all are computed."""
        for running, _ in parts:
            regime = self._rope.regime(running.request.num_tokens)
            assert running.request.rope_regime == regime, "a crossing is the scheduler's affair"
        batch = ScheduledBatch(
            tuple(
                ScheduledRequest(
                    running.request,
                    running.num_computed,
                    count,
                    running.block_ids,
                    running.num_computed + count == running.request.num_tokens,
                )
                for running, count in parts
            ),
            copies,
        )
        result = self.runner.execute(batch)
        assert not result.failed
        for running, count in parts:
            running.num_computed += count
            if token := result.sampled.get(running.request.request_id):
                running.request.append(token.token_id)

    def generate(self, requests: Sequence[Running], num_tokens: int, chunk: int = 1000) -> None:
        """Run all in the same steps, prompts in chunks, until each has `num_tokens` tokens."""
        while pending := [r for r in requests if len(r.output) < num_tokens]:
            self.step(*((r, min(chunk, r.request.num_tokens - r.num_computed)) for r in pending))

    def reply(self, token_ids: Sequence[int], num_tokens: int, chunk: int = 1000) -> list[int]:
        running = self.start(token_ids, room=num_tokens)
        self.generate([running], num_tokens, chunk)
        return running.output

    def logits(
        self, token_ids: Sequence[int], after: Running | None = None, num_cached: int = 0
    ) -> torch.Tensor:
        """What the model says after `token_ids`, the uncached of them computed in one step."""
        running = self.start(token_ids, room=0, after=after, num_cached=num_cached)
        count = len(token_ids) - num_cached
        part = ScheduledRequest(running.request, num_cached, count, running.block_ids, True)
        return self.runner.compute_logits(ScheduledBatch((part,)))[0]
