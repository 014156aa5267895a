"""Engines on a tiny random model whose device pool is small, with memory and disk below it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engine.config import EngineConfig
from engine.engine import Engine, EngineState, RequestStream
from engine.in_process import InProcessEngine
from engine.model.assembly import LoadedModel, assemble
from engine.request import GenerationRequest, Usage
from engine.sampling_params import SamplingParams
from tests.engine_factories import wait_until
from tests.tiny_models import tiny_model, tiny_tokenizer

BLOCK_SIZE = 8
NUM_WORDS = 150


def load_tiny(config: EngineConfig, report: Callable[[str], None]) -> LoadedModel:
    """An engine's process finds it by its name. `config.model` is the seed of the weights."""
    model = tiny_model("llama", seed=int(config.model) if config.model.isdigit() else 0)
    torch.set_num_threads(1)
    return assemble(config, model, tiny_tokenizer(NUM_WORDS), Path(), report)


def tiny_settings(**changes: Any) -> EngineConfig:
    """A device pool for about three conversations of 100 tokens."""
    settings: dict[str, Any] = {
        "model": "0",
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks_override": 42,
        "swap_space": 0.01,
        "attention_backend": "reference",
    }
    return EngineConfig(**(settings | changes))


@contextlib.contextmanager
def tiny_engine(**changes: Any) -> Iterator[InProcessEngine]:
    engine = InProcessEngine(tiny_settings(**changes), load_tiny)
    engine.start()
    try:
        wait_until(lambda: engine.status().state is not EngineState.LOADING, 60)
        assert engine.status().state is EngineState.READY, engine.status().message
        yield engine
    finally:
        engine.stop()


class Answer(NamedTuple):
    token_ids: tuple[int, ...]
    usage: Usage
    num_host_tokens: int
    num_disk_tokens: int


def ask(
    engine: Engine, request_id: str, prompt: Sequence[int], num_tokens: int = 8, **fields: Any
) -> RequestStream:
    sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    return engine.submit(
        GenerationRequest(
            request_id=request_id, prompt_token_ids=tuple(prompt), sampling=sampling, **fields
        )
    )


def answer_of(stream: RequestStream) -> Answer:
    outputs = list(stream)
    last = outputs[-1]
    assert last.usage is not None, last.error
    assert last.trace is not None
    token_ids = tuple(token_id for output in outputs for token_id in output.token_ids)
    return Answer(token_ids, last.usage, last.trace.num_host_tokens, last.trace.num_disk_tokens)
