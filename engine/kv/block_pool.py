"""All KV blocks, their reference counts, and who may have one next.

Every block is in exactly one place:

    free     not published, nobody's; handed out first, the longest free one first
    cached   published, nobody's; kept for reuse, least recently used first
    in use   referenced by block tables, or as the source of a copy that has not run yet

Knows nothing of requests or of how prefixes are found.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from engine.errors import OutOfBlocksError
from engine.kv.hashing import BlockHash


@dataclass(slots=True, eq=False, kw_only=True)
class PrefixNode:
    """A point in the tree of published prefixes: a root or a block. PrefixCache alone changes it.

    Only a whole block has a hash, hence children. `children` go by block id, most recently used
    last.
    """

    block_hash: BlockHash | None = None
    children: dict[int, Block] = field(default_factory=dict, repr=False)


@dataclass(slots=True, eq=False, kw_only=True)
class Block(PrefixNode):
    """`token_ids` are those of the computed slots, `parent` what they follow, while published.

    `owner`: whose it is, see owners.py; None before it is published.
    """

    block_id: int
    ref_count: int = 0
    token_ids: tuple[int, ...] = ()
    parent: PrefixNode | None = field(default=None, repr=False)
    owner: str | None = None

    @property
    def is_published(self) -> bool:
        return self.parent is not None


class BlockPool:
    def __init__(self, num_blocks: int) -> None:
        self.blocks = tuple(Block(block_id=block_id) for block_id in range(num_blocks))
        self._free = deque(self.blocks)
        self._cached: OrderedDict[int, Block] = OrderedDict()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that can be had, some of them by evicting."""
        return len(self._free) + len(self._cached)

    @property
    def num_in_use(self) -> int:
        return len(self.blocks) - self.num_available

    def allocate(self) -> Block:
        """The block that has been free longest, with one reference."""
        if not self._free:
            raise OutOfBlocksError("No KV block is free: evict a cached one first.")
        block = self._free.popleft()
        block.ref_count, block.owner = 1, None
        return block

    def acquire(self, block: Block) -> None:
        """One more reference to a block that is cached or in use."""
        if block.ref_count == 0:
            del self._cached[block.block_id]
        block.ref_count += 1

    def release(self, block: Block) -> None:
        """Children go before their parents: that keeps every cached child older than its parent."""
        assert block.ref_count > 0, f"block {block.block_id} is released too often"
        block.ref_count -= 1
        if block.ref_count:
            return
        if block.is_published:
            self._cached[block.block_id] = block
        else:
            self._free.append(block)

    def least_recently_used(self) -> Block:
        """The cached block to evict next; always a leaf, because children are older."""
        return next(iter(self._cached.values()))

    def cached(self) -> list[Block]:
        """The most recently used first: parents before their children."""
        return list(reversed(self._cached.values()))

    def reclaim(self, block: Block) -> None:
        """From cached to free, once it is not published any more."""
        del self._cached[block.block_id]
        self._free.append(block)

    def check_integrity(self) -> None:
        free = [block.block_id for block in self._free]
        cached = list(self._cached)
        in_use = [block.block_id for block in self.blocks if block.ref_count]
        assert sorted([*free, *cached, *in_use]) == list(range(len(self.blocks))), (
            f"blocks are lost or in two places: free {free}, cached {cached}, in use {in_use}"
        )
        for block_id in free:
            assert not self.blocks[block_id].is_published, f"free block {block_id} is published"
        age = {block_id: position for position, block_id in enumerate(cached)}
        for block in self._cached.values():
            assert block.is_published, f"cached block {block.block_id} is not published"
            for child_id in block.children:
                assert age.get(child_id, len(age)) < age[block.block_id], (
                    f"block {child_id} would be evicted after its parent {block.block_id}"
                )
