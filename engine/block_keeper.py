"""Keeps on disk, when the engine stops, what the next start should find."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from engine.batch import BlockMover
from engine.kv.disk_tier import MAX_PENDING_BYTES, DiskTier
from engine.kv.disk_worker import DiskWorker
from engine.kv.tiers import WarmBlock

KEEP_LIMIT_S = 2.5  # the supervisor waits a little longer
_NUM_AT_ONCE = 32
_log = logging.getLogger(__name__)


class _Ranked(NamedTuple):
    rank: int  # 0: most worth keeping
    block: WarmBlock


class BlockKeeper:
    """The disk tier's end of life; belongs to the engine's thread."""

    def __init__(
        self,
        mover: BlockMover,
        disk: DiskTier,
        worker: DiskWorker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mover = mover
        self._disk = disk
        self._worker = worker
        self._clock = clock

    def wait(self, timeout_s: float) -> None:
        """Return when something was read or written, or after that time."""
        self._worker.wait(timeout_s)

    def keep(self, blocks: Iterable[WarmBlock]) -> None:
        """Write as many as there is room and time for, in this order. Never raises."""
        deadline_s = self._clock() + KEEP_LIMIT_S
        try:
            chosen = self._choose(blocks)
            there = [item for item in chosen if item.block.key.block_hash in self._disk]
            missing = [item for item in chosen if self._disk.wants(item.block.key.block_hash)]
            for start in range(0, len(missing), _NUM_AT_ONCE):
                if not self._has_room(deadline_s):
                    break
                self._write(missing[start : start + _NUM_AT_ONCE])
            self._refresh(there, deadline_s)
            self._worker.finish(max(0.0, deadline_s - self._clock()))
        except Exception:
            _log.exception("What was warm could not be kept on disk")

    def close(self) -> None:
        self._worker.close()

    def _choose(self, blocks: Iterable[WarmBlock]) -> list[_Ranked]:
        """The best that fit the disk; those of them that are there already will stay there."""
        self._disk.collect()
        chosen: list[WarmBlock] = []
        max_blocks = self._disk.max_bytes // self._disk.num_file_bytes
        for block in blocks:
            if len(chosen) >= max_blocks:
                break
            chosen.append(block)
        for block in reversed(chosen):  # so that the best is the youngest
            self._disk.touch(block.key.block_hash, block.owner)
        return list(map(_Ranked._make, enumerate(chosen)))

    def _refresh(self, there: Sequence[_Ranked], deadline_s: float) -> None:
        """The files' ages, after what is new: for many there may be no time."""
        for rank, block in there:
            if self._clock() >= deadline_s:
                break
            self._disk.refresh(block.key.block_hash, rank)

    def _has_room(self, deadline_s: float) -> bool:
        num_new_bytes = _NUM_AT_ONCE * self._disk.num_file_bytes
        room = max(0, MAX_PENDING_BYTES - num_new_bytes)
        timeout_s = max(0.0, deadline_s - self._clock())
        return self._worker.wait_for_room(room, timeout_s) and self._clock() < deadline_s

    def _write(self, some: Sequence[_Ranked]) -> None:
        blocks = [item.block for item in some]
        on_device = [block.block_id for block in blocks if block.block_id is not None]
        in_slots = [block.slot for block in blocks if block.slot is not None]
        from_device = iter(self._mover.read_blocks(on_device) if on_device else [])
        from_slots = iter(self._mover.read_slots(in_slots) if in_slots else [])
        for rank, block in some:
            payload = next(from_slots if block.block_id is None else from_device)
            self._disk.put(block.key, block.owner, payload, rank)
