"""Attention in plain PyTorch, one sequence after the other: what every kernel is tested against."""

from __future__ import annotations

import torch

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.kv.storage import PagedKVStorage


class ReferenceAttention(AttentionBackend):
    """Decodes each sequence's keys and values and computes in float32. Clear, not fast."""

    name = "reference"

    def __init__(self, storage: PagedKVStorage) -> None:
        self._storage = storage

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
        self._storage.write(layer_index, key, value, metadata.slot_mapping)
        prepared = self._storage.scheme.prepare_queries(query.float(), layer_index)
        starts = metadata.query_starts.tolist()
        output = torch.empty_like(prepared)
        for index, num_keys in enumerate(metadata.context_lengths.tolist()):
            rows = slice(starts[index], starts[index + 1])
            stored = self._storage.read(layer_index, metadata.block_tables[index], num_keys)
            visible = visible_keys(
                starts[index + 1] - starts[index], num_keys, sliding_window, query.device
            )
            output[rows] = _attend_one(prepared[rows], stored.keys, stored.values, visible, scale)
        return self._storage.scheme.rotate_back(output).to(query.dtype)


def visible_keys(
    num_queries: int, num_keys: int, sliding_window: int | None, device: torch.device
) -> torch.Tensor:
    """Bool [num_queries, num_keys] for queries that are the last positions of their sequence."""
    key_positions = torch.arange(num_keys, device=device)
    query_positions = key_positions[num_keys - num_queries :, None]
    visible = key_positions <= query_positions
    if sliding_window is not None:
        visible &= key_positions > query_positions - sliding_window
    return visible


def _attend_one(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """One sequence, float32: query [q, num_heads, d], keys and values [k, num_kv_heads, d]."""
    num_queries, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    # Query heads that share a KV head lie next to each other: [kv_heads, heads per kv head, q, d].
    grouped = query.view(num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
    grouped = grouped.permute(1, 2, 0, 3)
    scores = grouped @ keys.permute(1, 2, 0)[:, None] * scale
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    output = weights @ values.transpose(0, 1)[:, None]
    return output.permute(2, 0, 1, 3).reshape(num_queries, num_heads, head_dim)
