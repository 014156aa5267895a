"""Copies of partly matched blocks that wait for the next step.

Copies and writes of one step do not meet, whatever their order among each other. A source keeps a
reference until the copies are taken, which happens when the step's plan is final: nothing that
the step writes was allocated from a source. A target is in one table and not published: it is no
other copy's source, and no other request's. And copies run before the step writes.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.kv.block_pool import Block, BlockPool


class TailCopy(NamedTuple):
    """Copy the first `num_tokens` slots of a block before the next step runs."""

    source_block_id: int
    target_block_id: int
    num_tokens: int


class PendingCopies:
    """At most one for each request; owns one reference to each source."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._copies: dict[str, TailCopy] = {}

    def add(self, request_id: str, source: Block, target: Block, num_tokens: int) -> None:
        """Takes over the caller's reference to the source."""
        self._copies[request_id] = TailCopy(source.block_id, target.block_id, num_tokens)

    def cancel(self, request_id: str) -> None:
        copy = self._copies.pop(request_id, None)
        if copy is not None:
            self._release_source(copy)

    def take(self) -> tuple[TailCopy, ...]:
        copies = tuple(self._copies.values())
        self._copies.clear()
        for copy in copies:
            self._release_source(copy)
        return copies

    def source_block_ids(self) -> tuple[int, ...]:
        return tuple(copy.source_block_id for copy in self._copies.values())

    def _release_source(self, copy: TailCopy) -> None:
        self._pool.release(self._pool.blocks[copy.source_block_id])
