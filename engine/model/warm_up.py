"""Steps that nobody asked for, run before serving: they compile, measure and check the model."""

from __future__ import annotations

import torch

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.batch import ScheduledBatch, ScheduledRequest
from engine.errors import ModelLoadError
from engine.model.runner import ModelRunner
from engine.request import Request
from engine.sampling_params import SamplingParams

_TRIAL_TOKEN = 1


class CountingAttention(AttentionBackend):
    """Notes which layers attend, and passes everything on."""

    def __init__(self, backend: AttentionBackend) -> None:
        self.name = backend.name
        self.layers: list[int] = []
        self._backend = backend

    def attend(
        self,
        layer_index: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
        scale: float,
        sliding_window: int | None,
    ) -> torch.Tensor:
        self.layers.append(layer_index)
        return self._backend.attend(layer_index, query, key, value, metadata, scale, sliding_window)


def check_model_runs(
    runner: ModelRunner, attention: CountingAttention, *, num_layers: int, block_size: int
) -> None:
    """Run a prompt of half a block, then one token more, while no block is in use.

    Raises:
        ModelLoadError: the model passes our attention by, or its output is not a number.
    """
    for start, num_tokens in ((0, block_size // 2), (block_size // 2, 1)):
        attention.layers.clear()
        scheduled = _trial("trial", start, num_tokens, first_block=0, block_size=block_size)
        result = runner.execute(ScheduledBatch((scheduled,)))
        if attention.layers != list(range(num_layers)):
            raise ModelLoadError(
                "This model does not use the attention that Hearth gives it in every layer: "
                "choose a model of another architecture."
            )
        if result.failed:
            raise ModelLoadError(
                "The model's output is not a number: its weights may be damaged, or too large for "
                "the type; try --dtype float32 or bfloat16."
            )


def full_batch(num_tokens: int, sequence_length: int, block_size: int) -> ScheduledBatch:
    """A step of `num_tokens` prompt tokens, in sequences of at most `sequence_length`."""
    blocks_per_sequence = -(-sequence_length // block_size)
    starts = range(0, num_tokens, sequence_length)
    return ScheduledBatch(
        tuple(
            _trial(
                f"trial-{index}",
                0,
                min(sequence_length, num_tokens - start),
                first_block=index * blocks_per_sequence,
                block_size=block_size,
            )
            for index, start in enumerate(starts)
        )
    )


def measure_peak_bytes(runner: ModelRunner, batch: ScheduledBatch) -> int:
    """The GPU's peak while `batch` runs, weights included."""
    torch.cuda.reset_peak_memory_stats()
    runner.execute(batch)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved()


def _trial(
    request_id: str, start: int, num_tokens: int, *, first_block: int, block_size: int
) -> ScheduledRequest:
    end = start + num_tokens
    request = Request(
        request_id=request_id,
        prompt_token_ids=(_TRIAL_TOKEN,) * end,
        sampling=SamplingParams(temperature=0.0),
        max_tokens=1,
        user=None,
        cache_salt="",
        arrival_s=0.0,
        deadline_s=None,
    )
    blocks = tuple(range(first_block, first_block - (-end // block_size)))
    return ScheduledRequest(request, start, num_tokens, blocks, samples=True)
