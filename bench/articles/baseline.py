"""What the articles compare with: `generate`, one prompt after the other. Brings torch along."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.articles.machine import MachineWatch
from bench.articles.runs import Answer, Prompt, Run
from engine import EngineConfig
from engine.model.sources import model_directory


class SequentialModel:
    """What a plain Gradio application does: a request waits for all before it."""

    def __init__(self, config: EngineConfig) -> None:
        directory = model_directory(config, print)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = AutoModelForCausalLM.from_pretrained(
            directory, dtype="auto" if device == "cuda" else torch.float32
        )
        self._model.to(device).eval()
        self.vocab_size: int = self._model.config.vocab_size
        self.max_model_len: int = self._model.config.max_position_embeddings
        self.answer([(0, 1, 2, 3)], 2)  # the first call also compiles

    def answer(self, prompts: Sequence[Prompt], max_tokens: int, **sampling: Any) -> Run:
        answers: list[Answer] = []
        start = time.perf_counter()
        with MachineWatch() as watch:
            for prompt in prompts:
                num_tokens = self._generate(prompt, max_tokens, sampling)
                total_s = time.perf_counter() - start
                answers.append(Answer(num_tokens, 0, total_s, total_s))
        return Run(time.perf_counter() - start, tuple(answers), watch.use)

    def _generate(self, prompt: Prompt, max_tokens: int, sampling: dict[str, Any]) -> int:
        ids = torch.tensor([prompt], device=self._model.device)
        with torch.inference_mode():
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                min_new_tokens=max_tokens,
                max_new_tokens=max_tokens,
                pad_token_id=0,
                do_sample=bool(sampling),
                **sampling,
            )
        return int(output.shape[1]) - len(prompt)


@contextmanager
def sequential_model(config: EngineConfig) -> Iterator[SequentialModel]:
    """In memory during the block only: a GPU has no room for it beside an engine."""
    model = SequentialModel(config)
    try:
        yield model
    finally:
        del model._model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
