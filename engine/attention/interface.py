"""What every attention back end offers the model, and the description of one step that it reads.

The packed row of a step: tokens of all sequences, one sequence after the other.

    query_starts      0        3  4          9
    tokens            a a a    b  c c c c c
    context_lengths   8 (a)   20 (b)  5 (c)     keys visible to the last token of each sequence
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """One step, all sequences; integer tensors on the model's device."""

    slot_mapping: torch.Tensor  # int64 [num_tokens]: block_id * block_size + offset, for K and V
    query_starts: torch.Tensor  # int32 [num_sequences + 1]: cumulative query lengths
    context_lengths: torch.Tensor  # int32 [num_sequences]
    block_tables: torch.Tensor  # int32 [num_sequences, max_blocks], padded with 0


class AttentionBackend(ABC):
    """Writes a step's K and V into the blocks and attends to what the blocks then hold."""

    name: str

    def warm_up(self, report: Callable[[str], None]) -> None:  # noqa: B027
        """Compile what has to be compiled, while no block is in use; nothing here."""

    @abstractmethod
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
        """Causal attention of every query over its own sequence, through the KV storage.

        Never attends to the fresh K and V, so that a cached prefix gives the same numbers as a
        computed one. With a window, a query sees itself and the `sliding_window - 1` keys before.

        Args:
            query: [num_tokens, num_heads, head_dim], rope applied.
            key: [num_tokens, num_kv_heads, head_dim], rope applied.
            value: [num_tokens, num_kv_heads, head_dim].

        Returns:
            [num_tokens, num_heads, head_dim], in the query's dtype.
        """
