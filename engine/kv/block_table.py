"""Which blocks hold one request's positions, in order.

| whole: published, shared or shareable      | own: being filled, nobody else sees it |
0                                  num_whole * block_size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.kv.block_pool import Block
from engine.kv.hashing import PrefixHashes
from engine.kv.owners import SHARED
from engine.kv.tiers import NOTHING_RESTORED, Restored


@dataclass(slots=True, eq=False, kw_only=True)
class BlockTable:
    """Holds one reference to each of its blocks.

    A block past `num_whole` is never published, so writing to it cannot change what others read.
    """

    hashes: PrefixHashes
    blocks: list[Block] = field(default_factory=list)
    num_whole: int = 0  # leading blocks that commit is done with
    published_ids: set[int] = field(default_factory=set)  # blocks that this request published
    fill_unconfirmed: bool = False  # blocks after the whole ones wait for a copy or for loads
    owner: str = SHARED  # of what this table publishes
    restored: Restored = NOTHING_RESTORED
    _block_ids: tuple[int, ...] | None = None

    @property
    def block_ids(self) -> tuple[int, ...]:
        if self._block_ids is None:
            self._block_ids = tuple(block.block_id for block in self.blocks)
        return self._block_ids

    def previous(self, index: int) -> Block | None:
        """The block before `index`; None before the first."""
        return self.blocks[index - 1] if index else None

    def extend(self, blocks: Sequence[Block]) -> None:
        self.blocks.extend(blocks)
        self._block_ids = None

    def replace(self, index: int, block: Block) -> None:
        self.blocks[index] = block
        self._block_ids = None

    def check_integrity(self, block_size: int) -> None:
        assert len(set(self.block_ids)) == len(self.blocks), f"a block twice in {self.block_ids}"
        assert self.num_whole <= len(self.blocks), f"{self.num_whole} whole of {len(self.blocks)}"
        for index, block in enumerate(self.blocks):
            name = f"block {block.block_id} at {index}"
            assert block.ref_count > 0, f"{name} is in a table, but not referenced"
            if not block.is_published:
                assert block.ref_count == 1, f"{name} is not published, but shared"
                continue
            assert index < self.num_whole, f"{name} is being filled, but published"
            assert len(block.token_ids) == block_size, f"{name} is not whole"
            previous = self.previous(index)
            assert previous is None or block.parent is previous, f"{name} follows another block"
        published = {block.block_id for block in self.blocks if block.is_published}
        assert self.published_ids <= published, f"{self.published_ids} are not all in {published}"
