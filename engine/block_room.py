"""Blocks that nobody needs yet, while waiting requests are chosen to start."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from engine.kv.manager import KVCacheManager
from engine.kv.matching import PrefixMatch
from engine.request import Request


def num_missing_blocks(kv: KVCacheManager, request: Request) -> int:
    """Blocks a running request lacks for all its tokens and one more."""
    num_needed = -(-(request.num_tokens + 1) // kv.block_size)
    return max(0, num_needed - len(kv.block_ids(request.request_id)))


class BlockRoom:
    """Keeps started requests from having to preempt each other at once.

    What running requests still need for their prompts is set aside, as is what each chosen request
    takes. Decoding beyond that may still run out: then the scheduler preempts.
    """

    def __init__(self, kv: KVCacheManager, running: Collection[Request]) -> None:
        self._kv = kv
        self._running = running
        usage = kv.usage()
        reserved = sum(num_missing_blocks(kv, request) for request in running)
        self._num_left = usage.num_free + usage.num_cached - reserved
        self._is_unused = not running

    def take(self, request: Request, match: PrefixMatch) -> bool:
        """Set aside what a waiting request needs; False if that is not there.

        A request alone always has room: admission made sure that it fits the pool.
        """
        num_shared = len(self._block_ids_in_use.intersection(match.block_ids))
        num_needed = -(-(request.num_tokens + 1) // self._kv.block_size) - num_shared
        if num_needed > self._num_left and not self._is_unused:
            return False
        self._num_left -= num_needed
        self._is_unused = False
        return True

    @cached_property
    def _block_ids_in_use(self) -> frozenset[int]:
        tables = (self._kv.block_ids(request.request_id) for request in self._running)
        return frozenset(block_id for table in tables for block_id in table)
