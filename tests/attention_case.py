"""Sequences on random, poisoned blocks, for tests of attention back ends."""

from __future__ import annotations

import numpy as np
import torch

from engine.attention.interface import AttentionMetadata
from engine.kv.schemes import KVScheme, kv_scheme
from engine.kv.storage import PagedKVStorage

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class AttentionCase:
    """Sequences with random block tables; `lengths` is the context of each."""

    def __init__(
        self,
        lengths: tuple[int, ...],
        *,
        scheme: str | KVScheme = "int8",
        heads: tuple[int, int] = (9, 3),
        head_dim: int = 64,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> None:
        self.lengths, self.heads = lengths, heads
        self.scheme = kv_scheme(scheme) if isinstance(scheme, str) else scheme
        self.head_dim, self.block_size, self.dtype = head_dim, block_size, dtype
        counts = [-(-length // block_size) for length in lengths]
        self.num_blocks = sum(counts) + 2
        shuffled = np.random.default_rng(seed).permutation(self.num_blocks).tolist()
        self.tables = [[shuffled.pop() for _ in range(count)] for count in counts]
        generator = torch.Generator().manual_seed(seed)
        self.vectors = [
            tuple(
                torch.randn(length, count, head_dim, generator=generator).to(dtype)
                for count in (heads[0], heads[1], heads[1])
            )
            for length in lengths
        ]

    def storage(self) -> PagedKVStorage:
        """Every slot that nobody writes is poison."""
        storage = PagedKVStorage(
            self.scheme,
            num_layers=2,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            num_kv_heads=self.heads[1],
            head_dim=self.head_dim,
            dtype=self.dtype,
        )
        for stored in (storage.keys, storage.values):
            (stored.data if stored.scales is None else stored.scales).fill_(torch.nan)
            if stored.scales is not None:
                stored.data.fill_(127)
        return storage

    def inputs(self, *parts: tuple[int, int, int]) -> tuple[Tensors, AttentionMetadata]:
        """Each part: a sequence and the positions [start, end) of it that a step computes."""
        size = self.block_size
        slots = [
            self.tables[sequence][position // size] * size + position % size
            for sequence, start, end in parts
            for position in range(start, end)
        ]
        tables = torch.zeros(len(parts), max(map(len, self.tables)), dtype=torch.int32)
        for row, (sequence, _, end) in zip(tables, parts, strict=True):
            row[: -(-end // size)] = torch.tensor(self.tables[sequence][: -(-end // size)])
        metadata = AttentionMetadata(
            slot_mapping=torch.tensor(slots),
            query_starts=torch.tensor([0, *(end - start for _, start, end in parts)])
            .cumsum(0)
            .int(),
            context_lengths=torch.tensor([end for *_, end in parts], dtype=torch.int32),
            block_tables=tables,
        )
        query, key, value = (
            torch.cat([self.vectors[sequence][kind][start:end] for sequence, start, end in parts])
            for kind in range(3)
        )
        return (query, key, value), metadata

    def whole(self) -> list[tuple[int, int, int]]:
        return [(sequence, 0, length) for sequence, length in enumerate(self.lengths)]
