"""Reads one text with several versions of a model, chunk by chunk, and compares what they predict.

All versions take each chunk in turn, so that only one chunk's logits are ever in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from engine.batch import ScheduledBatch, ScheduledRequest
from engine.model.assembly import RunnerFactory
from engine.model.runner import ModelRunner
from engine.request import Request
from engine.sampling_params import SamplingParams

CHUNK_TOKENS = 256


class Fidelity(NamedTuple):
    """Means over positions."""

    kld: float  # KL divergence from the reference, in nats
    top1: float  # share of positions with the reference's most likely token
    perplexity: float


class PositionScores(NamedTuple):
    """By position, float64 [num_tokens - 1]: of predicting each token but the first."""

    kld: torch.Tensor
    agrees: torch.Tensor  # 1 where the most likely tokens are the same
    negative_log_likelihood: torch.Tensor

    def between(self, start: int, end: int) -> Fidelity:
        """Over positions [start, end), the end cut to the text's; NaN where there are none."""
        kld, agrees, loss = (scores[start:end].mean().item() for scores in self)
        return Fidelity(kld, agrees, math.exp(loss))


class ForcedReader:
    """One version of a model with storage for one text, read through the engine's own runner."""

    def __init__(self, factory: RunnerFactory, token_ids: Sequence[int]) -> None:
        num_blocks = -(-len(token_ids) // factory.block_size)
        # Descending: neighbours in the table are none in memory.
        self._block_ids = tuple(reversed(range(num_blocks)))
        self._runner: ModelRunner = factory.make_runner(factory.make_storage(num_blocks))
        self._request = Request(
            request_id="text",
            prompt_token_ids=tuple(token_ids),
            sampling=SamplingParams(),
            max_tokens=1,
            user=None,
            cache_salt="",
            arrival_s=0.0,
            deadline_s=None,
        )

    def log_probabilities(self, start: int, num_tokens: int) -> torch.Tensor:
        """Float32 [num_tokens, vocab_size] after each of the next tokens, read in order."""
        part = ScheduledRequest(self._request, start, num_tokens, self._block_ids, samples=True)
        logits = self._runner.compute_logits(ScheduledBatch((part,)), every_position=True)
        return logits.float().log_softmax(dim=-1)


@torch.inference_mode()
def compare(
    reference: RunnerFactory,
    versions: Mapping[str, RunnerFactory],
    token_ids: Sequence[int],
    chunk_tokens: int = CHUNK_TOKENS,
    report: Callable[[int], None] = lambda num_read: None,
) -> dict[str, PositionScores]:
    """Each version against the reference, all of them given the text's true tokens.

    `report` gets the number of tokens that all have read, after each chunk.
    """
    expected_reader = ForcedReader(reference, token_ids)
    readers = {name: ForcedReader(factory, token_ids) for name, factory in versions.items()}
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in versions}
    num_predicted = len(token_ids) - 1
    for start in range(0, num_predicted, chunk_tokens):
        count = min(chunk_tokens, num_predicted - start)
        targets = torch.tensor(token_ids[start + 1 : start + count + 1])
        expected = expected_reader.log_probabilities(start, count)
        for name, reader in readers.items():
            found = reader.log_probabilities(start, count).to(expected.device)
            parts[name].append(_chunk_scores(expected, found, targets.to(expected.device)))
        report(start + count)
    return {
        name: PositionScores(*torch.cat(chunks, dim=1).double().cpu())
        for name, chunks in parts.items()
    }


def _chunk_scores(
    expected: torch.Tensor, found: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """[3, num_tokens], in the order of PositionScores; log probabilities [num_tokens, vocab]."""
    kld = (expected.exp() * (expected - found)).sum(dim=-1)
    agrees = (expected.argmax(dim=-1) == found.argmax(dim=-1)).float()
    loss = -found.gather(-1, targets[:, None])[:, 0]
    return torch.stack((kld, agrees, loss))
