"""What of a token list need not be computed: on the device, and below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.kv.block_pool import BlockPool
from engine.kv.hashing import BlockHash, PrefixHashes
from engine.kv.host_tier import HostEntry
from engine.kv.prefix_cache import CacheMatch, PrefixCache
from engine.kv.tiers import Tiers


class TailMatch(NamedTuple):
    """The first `num_tokens` slots of a block."""

    block_id: int
    num_tokens: int


class PrefixMatch(NamedTuple):
    """What of a token list is cached; at least its last token never is."""

    block_ids: tuple[int, ...]  # whole blocks on the device
    tail: TailMatch | None
    num_tokens: int
    next_hash: BlockHash | None  # of the first whole block that is not on the device
    num_restorable: int = 0  # whole blocks that follow them, below the device


class Found(NamedTuple):
    """A match on the device and what follows it below; there is no tail where something does."""

    match: CacheMatch
    entries: list[HostEntry]


class Matcher:
    """Changes nothing."""

    def __init__(self, pool: BlockPool, cache: PrefixCache, tiers: Tiers, block_size: int) -> None:
        self._pool = pool
        self._cache = cache
        self._tiers = tiers
        self._block_size = block_size

    def find(self, hashes: PrefixHashes, token_ids: Sequence[int]) -> Found:
        match = self._cache.match(hashes, token_ids)
        span = self.span_below(match, token_ids)
        entries = self._tiers.continuation(hashes, token_ids, span)
        return Found(match._replace(tail=None) if entries else match, entries)

    def span_below(self, match: CacheMatch, token_ids: Sequence[int]) -> range:
        """Indices of the whole blocks that may follow: the last token is always computed."""
        num_whole = max(len(token_ids) - 1, 0) // self._block_size
        return range(len(match.blocks), num_whole)

    def num_tokens(self, found: Found) -> int:
        num_whole = len(found.match.blocks) + len(found.entries)
        tail = found.match.tail
        return num_whole * self._block_size + (tail.num_tokens if tail else 0)

    def affordable(self, found: Found, num_tokens: int) -> Found | None:
        """As much of a match as there is room for beside the tokens still to compute.

        A copy's source takes up a block for one step. Where that could keep the request from ever
        having all its blocks, its tail is computed again instead.
        """
        match, entries = found
        room = self._pool.num_available - sum(not block.ref_count for block in match.blocks)
        if match.tail is None:
            return Found(match, entries[: room - 1]) if room else None
        if match.tail.in_place:
            return found
        room_beside_source = room - (not match.tail.block.ref_count)
        num_needed = -(-num_tokens // self._block_size)
        if num_needed - len(match.blocks) <= room_beside_source:
            return found
        return found._replace(match=match._replace(tail=None)) if room else None
