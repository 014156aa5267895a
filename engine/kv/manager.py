"""What the scheduler asks of the KV cache: who has which blocks, and what need not be computed.

Policy over BlockPool, PrefixCache, BlockTable and Tiers. Knows token ids and request ids, no
requests and no device; copies and moves of blocks are only noted here, for the step that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from engine.kv.block_pool import Block, BlockPool
from engine.kv.block_table import BlockTable
from engine.kv.hashing import BlockHash, BlockKey, PrefixHashes
from engine.kv.host_tier import HostEntry
from engine.kv.matching import Matcher, PrefixMatch, TailMatch
from engine.kv.owners import SHARED, joined, owner_of
from engine.kv.prefix_cache import CacheTail, NoPrefixCache, PrefixCache
from engine.kv.publisher import Publisher
from engine.kv.tail_copies import PendingCopies, TailCopy
from engine.kv.tiers import Restored, Tiers, WarmBlock


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
        identity: all that KV values of every request depend on, see ModelInfo.kv_identity.
            What they depend on besides differs by request and is its `namespace`: requests of
            different ones never share blocks.
        tiers: where evicted blocks go; nowhere by default. Whoever plans a step asks them for the
            moves that come before it, and tells them what came of those.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        identity: str,
        enable_prefix_caching: bool = True,
        tiers: Tiers | None = None,
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
        self.tiers = tiers or Tiers()
        self._matcher = Matcher(self._pool, self._cache, self.tiers, block_size)
        self._num_evicted_total = 0

    def match_prefix(
        self, request_id: str, token_ids: Sequence[int], namespace: str = ""
    ) -> PrefixMatch:
        """What `start` would find now; it may use less of it where blocks are short."""
        found = self._matcher.find(self._hashes_of(request_id, namespace), token_ids)
        match, tail = found.match, found.match.tail
        return PrefixMatch(
            block_ids=tuple(block.block_id for block in match.blocks),
            tail=TailMatch(tail.block.block_id, tail.num_tokens) if tail else None,
            num_tokens=self._matcher.num_tokens(found),
            next_hash=match.next_hash,
            num_restorable=len(found.entries),
        )

    def start(
        self,
        request_id: str,
        token_ids: Sequence[int],
        namespace: str = "",
        conversation: str = "",
    ) -> int | None:
        """Begin a block table with what is cached; returns the number of cached tokens.

        None when there is no room to compute even one token. `conversation` is whose blocks they
        are from now on; see `forget_conversations`.
        """
        assert request_id not in self._tables, f"request {request_id} has started already"
        hashes = self._hashes_of(request_id, namespace)
        found = self._matcher.affordable(self._matcher.find(hashes, token_ids), len(token_ids))
        if found is None:
            return None
        match, entries = found
        owner = owner_of(conversation)
        table = BlockTable(hashes=hashes, num_whole=len(match.blocks), owner=owner)
        table.extend([self._use(block) for block in match.blocks])
        for block in match.blocks:
            block.owner = joined(block.owner, owner)
        if match.tail is not None:
            table.extend([self._begin_with_tail(request_id, match.tail)])
            table.fill_unconfirmed = not match.tail.in_place
        if entries:
            table.extend(self._begin_loads(request_id, entries, table))
        self._tables[request_id] = table
        return self._matcher.num_tokens(found)

    def restored(self, request_id: str) -> Restored:
        """What of a started request's blocks came from below the device."""
        return self._tables[request_id].restored

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
        table.fill_unconfirmed = False
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
        if table.fill_unconfirmed:  # they may not hold what they should
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
        for block_hash in self._publisher.withdraw(table):
            self.tiers.drop_subtree(block_hash)
        self._release(table)

    def forget(self, request_id: str) -> None:
        """Drop what is remembered of a request that never started."""
        self._hashes.pop(request_id, None)
        self.tiers.cancel(request_id)

    def fetch(
        self, request_id: str, token_ids: Sequence[int], namespace: str, now_s: float
    ) -> None:
        """Begin to read what `start` could use from disk."""
        hashes = self._hashes_of(request_id, namespace)
        match = self._cache.match(hashes, token_ids)
        span = self._matcher.span_below(match, token_ids)
        self.tiers.fetch(request_id, hashes, token_ids, span, now_s)

    def forget_conversations(self, conversations: Collection[str]) -> None:
        """Remove every block that only requests of these have used, but none that is in use.

        Whoever uses a block uses what it follows: what follows one of theirs is theirs.
        """
        owners = frozenset(map(owner_of, conversations)) - {SHARED}
        for block in self._pool.blocks:
            if block.owner in owners and block.is_published and not block.ref_count:
                self._publisher.unpublish_subtree(block)
        self.tiers.forget(owners)

    def warm_blocks(self) -> Iterator[WarmBlock]:
        """Whole blocks that nobody uses, most worth keeping first."""
        device = [
            WarmBlock(_key_of(block), block.owner or SHARED, block.block_id, None)
            for block in self._pool.cached()
            if block.block_hash is not None
        ]
        return self.tiers.warm(device)

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
        self.tiers.check_integrity()
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

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _begin_loads(
        self, request_id: str, entries: list[HostEntry], table: BlockTable
    ) -> list[Block]:
        """Blocks that will hold these entries. Until the step has run, they are the table's own."""
        self.tiers.pin(entries)
        blocks = [self._allocate() for _ in entries]
        for block, entry in zip(blocks, entries, strict=True):
            block.owner = joined(entry.owner, table.owner)
        block_ids = [block.block_id for block in blocks]
        table.restored = self.tiers.load(request_id, entries, block_ids, table.owner)
        table.fill_unconfirmed = True
        return blocks

    def _begin_with_tail(self, request_id: str, tail: CacheTail) -> Block:
        """The table's own block that holds the tail: the tail itself, or a copy to come."""
        source = self._use(tail.block)
        if tail.in_place:
            self._cache.unpublish(source)
            source.owner = None
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
            if block.block_hash is not None:
                self.tiers.keep(_key_of(block), block.owner or SHARED, block.block_id)
            self._cache.unpublish(block)
            self._pool.reclaim(block)
            self._num_evicted_total += 1
        return self._pool.allocate()

    def _close(self, request_id: str) -> BlockTable:
        """Take the table out; a copy and loads that wait for it are called off."""
        self._hashes.pop(request_id, None)
        self._copies.cancel(request_id)
        self.tiers.cancel(request_id)
        return self._tables.pop(request_id)

    def _release(self, table: BlockTable) -> None:
        for block in reversed(table.blocks):
            self._pool.release(block)


def _key_of(block: Block) -> BlockKey:
    """Of a whole block that is published."""
    assert block.block_hash is not None, f"block {block.block_id} is not whole"
    assert block.parent is not None, f"block {block.block_id} is not published"
    assert block.parent.block_hash is not None, f"block {block.block_id} follows a partial one"
    return BlockKey(block.block_hash, block.parent.block_hash, block.token_ids)
