"""Packs a step's tokens into one row and describes it to the model and to the attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.interface import AttentionMetadata
from engine.batch import ScheduledBatch, ScheduledRequest
from engine.rope_regimes import LONG

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ModelInputs:
    input_ids: torch.Tensor  # int64 [1, num_tokens + padding]
    position_ids: torch.Tensor  # int64 [1, num_tokens + padding]
    rope_tables: torch.Tensor  # int64 [1, num_tokens + padding]: 1 for the long rope regime
    attention: AttentionMetadata
    logits_indices: torch.Tensor  # int64 [num_sampling]: positions in the row to sample after


def build_inputs(
    batch: ScheduledBatch,
    block_size: int,
    device: torch.device | str = "cpu",
    row_multiple: int = 1,
) -> ModelInputs:
    """Cheap on purpose: what it touches is this step's tokens and block tables, not the context.

    The row is padded to a multiple of `row_multiple`; the attention is not told of the padding.
    """
    scheduled = batch.requests
    tables = _block_tables(scheduled, block_size)
    positions = [_positions(item) for item in scheduled]
    slots = [
        table[position // block_size].astype(np.int64) * block_size + position % block_size
        for table, position in zip(tables, positions, strict=True)
    ]
    token_ids = [_scheduled_token_ids(item) for item in scheduled]
    padding = [np.zeros(-batch.num_tokens % row_multiple, dtype=np.int64)]
    lengths = np.array([item.num_tokens for item in scheduled], dtype=np.int64)
    ends = lengths.cumsum()
    samples = np.array([item.samples for item in scheduled], dtype=bool)
    is_long = np.array([item.request.rope_regime == LONG for item in scheduled], dtype=np.int64)

    def on_device(array: Int32Array | Int64Array) -> torch.Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    return ModelInputs(
        input_ids=on_device(np.concatenate(token_ids + padding))[None],
        position_ids=on_device(np.concatenate(positions + padding))[None],
        rope_tables=on_device(np.concatenate([is_long.repeat(lengths), *padding]))[None],
        attention=AttentionMetadata(
            slot_mapping=on_device(np.concatenate(slots)),
            query_starts=on_device(np.concatenate(([0], ends)).astype(np.int32)),
            context_lengths=on_device(
                np.array([item.start + item.num_tokens for item in scheduled], dtype=np.int32)
            ),
            block_tables=on_device(tables),
        ),
        logits_indices=on_device(ends[samples] - 1),
    )


def _positions(scheduled: ScheduledRequest) -> Int64Array:
    return np.arange(scheduled.start, scheduled.start + scheduled.num_tokens, dtype=np.int64)


def _scheduled_token_ids(scheduled: ScheduledRequest) -> Int64Array:
    start, end = scheduled.start, scheduled.start + scheduled.num_tokens
    token_ids = scheduled.request.token_ids[start:end]
    assert len(token_ids) == scheduled.num_tokens, "scheduled past the request's last token"
    return np.array(token_ids, dtype=np.int64)


def _block_tables(scheduled: tuple[ScheduledRequest, ...], block_size: int) -> Int32Array:
    lengths = [-(-(item.start + item.num_tokens) // block_size) for item in scheduled]
    tables = np.zeros((len(scheduled), max(lengths)), dtype=np.int32)
    for row, item, length in zip(tables, scheduled, lengths, strict=True):
        row[:length] = item.block_ids[:length]
    return tables
