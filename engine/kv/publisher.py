"""What a request's block table gives to the prefix cache, and takes back from it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.kv.block_pool import Block, BlockPool
from engine.kv.block_table import BlockTable
from engine.kv.hashing import BlockHash
from engine.kv.owners import joined
from engine.kv.prefix_cache import PrefixCache


class Publisher:
    def __init__(self, pool: BlockPool, cache: PrefixCache, block_size: int) -> None:
        self._pool = pool
        self._cache = cache
        self._block_size = block_size

    def publish_whole(self, table: BlockTable, token_ids: Sequence[int], num_whole: int) -> None:
        """Publish a table's blocks up to the first `num_whole`."""
        for index in range(table.num_whole, num_whole):
            previous, block = table.previous(index), table.blocks[index]
            published = self._cache.publish(previous, block, table.hashes, token_ids, index)
            self._adopt(table, index, published)
            table.num_whole = index + 1

    def publish_tail(self, table: BlockTable, token_ids: Sequence[int], num_valid: int) -> None:
        """Publish the block that the first `num_valid` positions fill only in part."""
        index, num_tail_tokens = divmod(num_valid, self._block_size)
        if not num_tail_tokens or table.blocks[index].is_published:
            return
        previous, block = table.previous(index), table.blocks[index]
        tokens = tuple(token_ids[num_valid - num_tail_tokens : num_valid])
        published = self._cache.publish_tail(previous, block, table.hashes, tokens)
        self._adopt(table, index, published)

    def cut(self, table: BlockTable, num_valid: int) -> None:
        """Unpublish what the table published past `num_valid`, unless others build on it."""
        for block in reversed(table.blocks[num_valid // self._block_size :]):
            if _is_own(table, block) and not block.children:
                self._cache.unpublish(block)

    def withdraw(self, table: BlockTable) -> list[BlockHash]:
        """Unpublish all that the table published and others do not use, and what follows it.

        Whoever used what follows such a block would hold the block too. Returns the hashes of all
        that went: what else was computed from them is to be forgotten as well.
        """
        hashes: list[BlockHash] = []
        for block in table.blocks:
            if _is_own(table, block) and block.is_published:
                hashes += self.unpublish_subtree(block)
        return hashes

    def unpublish_subtree(self, block: Block) -> list[BlockHash]:
        """Of a block whose descendants nobody refers to; returns their hashes."""
        subtree = self._cache.subtree(block)
        hashes = [each.block_hash for each in subtree if each.block_hash is not None]
        for descendant in subtree:
            self._unpublish(descendant)
        return hashes

    def _unpublish(self, block: Block) -> None:
        self._cache.unpublish(block)
        if not block.ref_count:
            self._pool.reclaim(block)

    def _adopt(self, table: BlockTable, index: int, published: Block | None) -> None:
        """Note that a block was published, or hold the equal one that was there before."""
        block = table.blocks[index]
        if published is not None:
            published.owner = joined(published.owner, table.owner)
        if published is block:
            table.published_ids.add(block.block_id)
        elif published is not None:
            self._pool.acquire(published)
            self._cache.touch(published)
            table.replace(index, published)
            self._pool.release(block)


def _is_own(table: BlockTable, block: Block) -> bool:
    """Published by this table, and held by no other."""
    return block.block_id in table.published_ids and block.ref_count == 1
