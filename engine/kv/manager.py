"""What the scheduler asks of the KV cache: who has which blocks, and what need not be computed.

Policy over BlockPool, PrefixCache and BlockTable. Knows token ids and request ids, no requests and
no device; copies between blocks are only noted here, for the step that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from engine.kv.block_pool import Block, BlockPool
from engine.kv.block_table import BlockTable
from engine.kv.hashing import BlockHash, PrefixHashes
from engine.kv.prefix_cache import CacheMatch, CacheTail, NoPrefixCache, PrefixCache
from engine.kv.publisher import Publisher
from engine.kv.tail_copies import PendingCopies, TailCopy


class TailMatch(NamedTuple):
    """The first `num_tokens` slots of a block."""

    block_id: int
    num_tokens: int


class PrefixMatch(NamedTuple):
    """What of a token list is cached; at least its last token never is."""

    block_ids: tuple[int, ...]  # whole blocks
    tail: TailMatch | None
    num_tokens: int
    next_hash: BlockHash | None  # of the first whole block that is not cached


class PoolUsage(NamedTuple):
    num_blocks: int
    num_in_use: int
    num_cached: int
    num_free: int
    num_evicted_total: int


class KVCacheManager:
    """One block table for each running request, over one pool with one prefix cache.

    A request's life: start, then extend and commit for each step, then free (or discard). `start`
    and `extend` either do all they were asked or change nothing. Single-threaded.

    Args:
        identity: all that KV values of every request depend on: model fingerprint and KV scheme.
            What they depend on besides differs by request and is its `namespace`: requests of
            different ones never share blocks.
    """

    def __init__(
        self, *, num_blocks: int, block_size: int, identity: str, enable_prefix_caching: bool = True
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._identity = identity
        self._pool = BlockPool(num_blocks)
        cache = PrefixCache if enable_prefix_caching else NoPrefixCache
        self._cache = cache(block_size)
        self._tables: dict[str, BlockTable] = {}
        self._hashes: dict[str, PrefixHashes] = {}  # of requests that have not started yet too
        self._publisher = Publisher(self._pool, self._cache, block_size)
        self._copies = PendingCopies(self._pool)
        self._num_evicted_total = 0

    def match_prefix(
        self, request_id: str, token_ids: Sequence[int], namespace: str = ""
    ) -> PrefixMatch:
        """What `start` would find now; it may use less of it where blocks are short."""
        match = self._cache.match(self._hashes_of(request_id, namespace), token_ids)
        tail = match.tail
        return PrefixMatch(
            block_ids=tuple(block.block_id for block in match.blocks),
            tail=TailMatch(tail.block.block_id, tail.num_tokens) if tail else None,
            num_tokens=self._num_matched(match),
            next_hash=match.next_hash,
        )

    def start(self, request_id: str, token_ids: Sequence[int], namespace: str = "") -> int | None:
        """Begin a block table with what is cached; returns the number of cached tokens.

        None when there is no room to compute even one token.
        """
        assert request_id not in self._tables, f"request {request_id} has started already"
        hashes = self._hashes_of(request_id, namespace)
        match = self._affordable(self._cache.match(hashes, token_ids), len(token_ids))
        if match is None:
            return None
        table = BlockTable(hashes=hashes, num_whole=len(match.blocks))
        table.extend([self._use(block) for block in match.blocks])
        if match.tail is not None:
            table.extend([self._begin_with_tail(request_id, match.tail)])
            table.copy_unconfirmed = not match.tail.in_place
        self._tables[request_id] = table
        return self._num_matched(match)

    def extend(self, request_id: str, num_tokens: int) -> bool:
        """Make the table cover `num_tokens` positions; False when blocks are missing."""
        table = self._tables[request_id]
        num_missing = self._num_blocks_for(num_tokens) - len(table.blocks)
        if num_missing <= 0:
            return True
        if num_missing > self._pool.num_available:
            return False
        table.extend([self._allocate() for _ in range(num_missing)])
        return True

    def block_ids(self, request_id: str) -> tuple[int, ...]:
        return self._tables[request_id].block_ids

    def commit(self, request_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """After a step: the first `num_computed` positions hold KV; publish what became whole."""
        table = self._tables[request_id]
        table.copy_unconfirmed = False
        num_whole = num_computed // self.block_size
        if num_whole > table.num_whole:
            self._publisher.publish_whole(table, token_ids, num_whole)

    def upcoming_hashes(
        self, request_id: str, token_ids: Sequence[int], namespace: str, end: int
    ) -> tuple[BlockHash, ...]:
        """Of the whole blocks of token_ids[:end] that this request has not committed yet."""
        table = self._tables.get(request_id)
        start = table.num_whole if table else 0
        hashes = self._hashes_of(request_id, namespace)
        return self._cache.whole_hashes(hashes, token_ids, start, end // self.block_size)

    def free(self, request_id: str, token_ids: Sequence[int], num_valid: int) -> None:
        """End a table; what its first `num_valid` positions hold stays, for reuse.

        `num_valid` may be less than was committed: what lies past it is not kept under these
        tokens, unless others use it already.
        """
        assert num_valid <= len(token_ids), f"{num_valid} of {len(token_ids)} tokens are valid"
        table = self._close(request_id)
        if table.copy_unconfirmed:  # the copy may not have run: those slots hold something else
            num_valid = min(num_valid, table.num_whole * self.block_size)
        self._publisher.publish_whole(table, token_ids, num_valid // self.block_size)
        self._publisher.cut(table, num_valid)
        self._publisher.publish_tail(table, token_ids, num_valid)
        self._release(table)

    def discard(self, request_id: str) -> None:
        """End a table whose values cannot be trusted: forget what it published.

        A block that others use meanwhile stays. What was published after a forgotten block was
        computed from it, and goes too.
        """
        table = self._close(request_id)
        self._publisher.withdraw(table)
        self._release(table)

    def forget(self, request_id: str) -> None:
        """Drop what is remembered of a request that never started."""
        self._hashes.pop(request_id, None)

    def take_copies(self) -> tuple[TailCopy, ...]:
        """What must be copied before the next step writes. To be asked last in planning a step."""
        return self._copies.take()

    def fits(self, num_tokens: int) -> bool:
        """Whether so many positions could ever be held at once."""
        return self._num_blocks_for(num_tokens) <= self.num_blocks

    def usage(self) -> PoolUsage:
        pool = self._pool
        return PoolUsage(
            num_blocks=self.num_blocks,
            num_in_use=pool.num_in_use,
            num_cached=pool.num_cached,
            num_free=pool.num_free,
            num_evicted_total=self._num_evicted_total,
        )

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong."""
        self._pool.check_integrity()
        self._cache.check_integrity(self._pool.blocks)
        references = Counter(self._copies.source_block_ids())
        for table in self._tables.values():
            table.check_integrity(self.block_size)
            references.update(table.block_ids)
        for block in self._pool.blocks:
            expected = references[block.block_id]
            assert block.ref_count == expected, (
                f"block {block.block_id} has {block.ref_count} references instead of {expected}"
            )

    def _hashes_of(self, request_id: str, namespace: str) -> PrefixHashes:
        hashes = self._hashes.get(request_id)
        if hashes is None or hashes.namespace != namespace:
            hashes = PrefixHashes(self._identity, self.block_size, namespace)
            self._hashes[request_id] = hashes
        return hashes

    def _num_matched(self, match: CacheMatch) -> int:
        num_tail_tokens = match.tail.num_tokens if match.tail else 0
        return len(match.blocks) * self.block_size + num_tail_tokens

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _affordable(self, match: CacheMatch, num_tokens: int) -> CacheMatch | None:
        """As much of a match as there is room for beside the tokens still to compute.

        A copy's source takes up a block for one step. Where that could keep the request from ever
        having all its blocks, its tail is computed again instead.
        """
        room = self._pool.num_available - sum(not block.ref_count for block in match.blocks)
        if match.tail is None:
            return match if room else None
        if match.tail.in_place:
            return match
        room_beside_source = room - (not match.tail.block.ref_count)
        if self._num_blocks_for(num_tokens) - len(match.blocks) <= room_beside_source:
            return match
        return match._replace(tail=None) if room else None

    def _begin_with_tail(self, request_id: str, tail: CacheTail) -> Block:
        """The table's own block that holds the tail: the tail itself, or a copy to come."""
        source = self._use(tail.block)
        if tail.in_place:
            self._cache.unpublish(source)
            return source
        target = self._allocate()
        self._copies.add(request_id, source, target, tail.num_tokens)
        return target

    def _use(self, block: Block) -> Block:
        self._pool.acquire(block)
        self._cache.touch(block)
        return block

    def _allocate(self) -> Block:
        if not self._pool.num_free:
            block = self._pool.least_recently_used()
            self._cache.unpublish(block)
            self._pool.reclaim(block)
            self._num_evicted_total += 1
        return self._pool.allocate()

    def _close(self, request_id: str) -> BlockTable:
        """Take the table out; a copy that waits for it is called off."""
        self._hashes.pop(request_id, None)
        self._copies.cancel(request_id)
        return self._tables.pop(request_id)

    def _release(self, table: BlockTable) -> None:
        for block in reversed(table.blocks):
            self._pool.release(block)
