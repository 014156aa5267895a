"""Raw prompts of token ids, and how a Hearth engine answers many of them at once."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.articles.machine import MachineUse, MachineWatch
from bench.report import percentile
from engine import (
    Engine,
    FinishReason,
    GenerationRequest,
    RequestStream,
    SamplingParams,
)

Prompt = tuple[int, ...]


class Answer(NamedTuple):
    num_tokens: int
    num_cached_tokens: int
    ttft_s: float
    total_s: float  # from its asking, the wait included


class Run(NamedTuple):
    """All prompts answered; they were asked at the same time."""

    wall_s: float
    answers: tuple[Answer, ...]
    machine: MachineUse

    @property
    def tokens_per_s(self) -> float:
        return sum(answer.num_tokens for answer in self.answers) / self.wall_s

    @property
    def latency_p50_s(self) -> float:
        return percentile([answer.total_s for answer in self.answers], 0.5)

    @property
    def latency_p95_s(self) -> float:
        return percentile([answer.total_s for answer in self.answers], 0.95)


class Prompts:
    """Random ids: every call gives other ones, so that nothing is in a cache by chance."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        self._generator = random.Random(seed)
        self._vocab_size = vocab_size

    def make(self, count: int, length: int) -> list[Prompt]:
        return [
            tuple(self._generator.randrange(self._vocab_size) for _ in range(length))
            for _ in range(count)
        ]


class Hearth:
    """Raw prompts through an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.info = engine.model_info()
        self._ids = itertools.count()

    def answer(self, prompts: Sequence[Prompt], max_tokens: int, **sampling: Any) -> Run:
        chosen = SamplingParams(
            **{"temperature": 0.0, **sampling}, max_tokens=max_tokens, ignore_eos=True
        )
        start = time.perf_counter()
        with MachineWatch(self.engine.stats) as watch:
            streams = [
                self.engine.submit(
                    GenerationRequest(
                        request_id=f"articles-{next(self._ids)}",
                        prompt_token_ids=prompt,
                        sampling=chosen,
                        user=f"user-{number}",
                        timeout_s=24 * 3600,
                    )
                )
                for number, prompt in enumerate(prompts)
            ]
            answers = tuple(_read(stream) for stream in streams)
            wall_s = time.perf_counter() - start
        return Run(wall_s, answers, watch.use)


def _read(stream: RequestStream) -> Answer:
    last = list(stream)[-1]
    if last.finish_reason is not FinishReason.LENGTH:
        raise SystemExit(f"An answer failed: {last.error or last.finish_reason}")
    assert last.usage is not None
    assert last.timings is not None
    assert last.timings.ttft_s is not None
    assert last.timings.e2e_s is not None
    return Answer(
        last.usage.num_output_tokens,
        last.usage.num_cached_tokens,
        last.timings.ttft_s,
        last.timings.e2e_s,
    )
