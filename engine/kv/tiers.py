"""Below the device's pool: host memory and disk, where evicted whole blocks go and come back from.

Decides what is kept and notes what has to be moved; the moves run before the step that follows.

    device --save--> host slot --spill--> disk
    device <--load-- host slot <--fill--- disk (read while the request that wants it still waits)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.kv.block_moves import BlockMoves, Fill, Load, MoveOutcome, Save, Spill
from engine.kv.disk_tier import DiskTier
from engine.kv.fetches import Fetches
from engine.kv.hashing import BlockHash, BlockKey, PrefixHashes
from engine.kv.host_tier import HostEntry, HostTier


class TierUsage(NamedTuple):
    num_host_slots: int
    num_host_blocks: int
    num_disk_blocks: int
    disk_bytes: int
    max_disk_bytes: int
    num_saved_total: int  # blocks that went from the device to the host
    num_restored_total: int  # and back


class Restored(NamedTuple):
    """Blocks that a request got from below the device."""

    num_host_blocks: int = 0
    num_disk_blocks: int = 0  # read from disk for this request or for one that never used them


NOTHING_RESTORED = Restored()


class WarmBlock(NamedTuple):
    """A block worth keeping when the engine stops: on the device, or (None) in a host slot."""

    key: BlockKey
    owner: str
    block_id: int | None
    slot: int | None


class Tiers:
    """Without slots everything is a miss and nothing is kept.

    Args:
        max_reading: most blocks that are being read from disk at the same time; they are in memory
            until the next step.
    """

    def __init__(
        self, num_slots: int = 0, disk: DiskTier | None = None, max_reading: int = 0
    ) -> None:
        self._host = HostTier(num_slots)
        self._disk = disk
        self._max_reading = min(max_reading, num_slots // 2)
        self._fetches = Fetches()
        self._spills: dict[int, Spill] = {}  # all four by slot, noted for the next step
        self._fills: dict[int, Fill] = {}
        self._saves: dict[int, Save] = {}
        self._loads: dict[str, list[Load]] = {}  # by request
        self._num_saved_total = 0
        self._num_restored_total = 0

    # --- eviction from the device

    def keep(self, key: BlockKey, owner: str, block_id: int) -> None:
        """A device block is evicted: note to save it, if it is not here and there is a slot."""
        if self._host.find(key) is not None:
            self._host.touch(key.block_hash, owner)
            return
        slot = self._take(key, owner)
        if slot is not None:
            self._saves[slot] = Save(block_id, slot)

    # --- what a request finds

    def continuation(
        self, hashes: PrefixHashes, token_ids: Sequence[int], span: range
    ) -> list[HostEntry]:
        """Entries for the whole blocks of these indices, up to the first that is missing."""
        entries: list[HostEntry] = []
        if not len(self._host):
            return entries
        for index in span:
            entry = self._host.find(hashes.key(token_ids, index))
            if entry is None:
                break
            entries.append(entry)
        return entries

    def pin(self, entries: Sequence[HostEntry]) -> None:
        """Before anything is evicted: these are about to be loaded."""
        for entry in entries:
            self._host.pin(entry)

    def load(
        self, request_id: str, entries: Sequence[HostEntry], block_ids: Sequence[int], owner: str
    ) -> Restored:
        """Note to load pinned entries into a request's blocks."""
        num_from_disk = sum(entry.is_from_disk for entry in entries)
        loads = zip(entries, block_ids, strict=True)
        self._loads[request_id] = [Load(entry.slot, block_id) for entry, block_id in loads]
        for entry in reversed(entries):  # so that parents are younger than their children
            self._host.touch(entry.key.block_hash, owner)
            entry.is_from_disk = False
            if self._disk is not None:
                self._disk.touch(entry.key.block_hash, owner)
        return Restored(len(entries) - num_from_disk, num_from_disk)

    def cancel(self, request_id: str) -> None:
        """The request has gone: its loads are not needed, and it waits for nothing."""
        for load in self._loads.pop(request_id, ()):
            self._host.unpin(self._host.at_slot(load.slot))
        self._fetches.cancel(request_id)

    # --- reading from disk ahead

    def fetch(
        self,
        request_id: str,
        hashes: PrefixHashes,
        token_ids: Sequence[int],
        span: range,
        now_s: float,
    ) -> None:
        """Begin to read what of these whole blocks is on disk and not in a slot."""
        if self._disk is None or not len(self._disk):
            return
        wanted: list[BlockKey] = []
        for index in span:
            key = hashes.key(token_ids, index)
            if self._host.find(key) is None:
                if not self._disk.can_read(key.block_hash):
                    break
                wanted.append(key)
        self._disk.read(self._fetches.begin(request_id, wanted, now_s, self._max_reading))

    def is_fetching(self, request_id: str, now_s: float) -> bool:
        """Whether it is worth waiting for what is being read."""
        return self._fetches.is_waiting(request_id, now_s)

    def collect(self) -> None:
        """Give slots to what has been read since the last time."""
        if self._disk is None:
            return
        for done in self._disk.collect():
            key = done.key
            is_wanted = self._fetches.end(key.block_hash)
            owner = self._disk.owner_of(key.block_hash)  # None: evicted meanwhile
            if done.payload is None or owner is None or not is_wanted:
                continue
            slot = self._take(key, owner)
            if slot is not None:
                self._host.at_slot(slot).is_from_disk = True
                self._fills[slot] = Fill(slot, done.payload)

    # --- moving

    def take_moves(self) -> BlockMoves:
        """What must be moved before the next step. To be asked last in planning it."""
        moves = BlockMoves(
            spills=tuple(self._spills.values()),
            fills=tuple(self._fills.values()),
            saves=tuple(self._saves.values()),
            loads=tuple(load for loads in self._loads.values() for load in loads),
        )
        self._spills.clear()
        self._fills.clear()
        self._saves.clear()
        self._loads.clear()
        return moves

    def moved(self, moves: BlockMoves, outcome: MoveOutcome) -> None:
        """They have run. What did not succeed is not here any more."""
        slots = [*(fill.slot for fill in moves.fills), *(save.slot for save in moves.saves)]
        for slot in slots:
            self._settle(slot, is_good=slot not in outcome.failed_slots)
        for load in moves.loads:
            self._settle(load.slot, is_good=load.block_id not in outcome.unfilled_block_ids)
        self._num_saved_total += sum(s.slot not in outcome.failed_slots for s in moves.saves)
        self._num_restored_total += len(moves.loads) - len(outcome.unfilled_block_ids)
        for spill in moves.spills:
            payload = outcome.payloads.get(spill.slot)
            if payload is not None and self._disk is not None:
                self._disk.put(spill.key, spill.owner, payload)

    # --- removing

    def drop_subtree(self, block_hash: BlockHash) -> None:
        """This block's values cannot be trusted, nor what was computed from them."""
        pending = [block_hash]
        while pending:
            dropped = pending.pop()
            pending.extend(self._host.children(dropped))
            if self._disk is not None:
                pending.extend(self._disk.children(dropped))
            self._drop(dropped)

    def forget(self, owners: frozenset[str]) -> None:
        """Remove every block that only these have used."""
        found = set(self._host.owned_by(owners))
        if self._disk is not None:
            found.update(self._disk.owned_by(owners))
            self._disk.forget_foreign(owners)
        for slot, spill in list(self._spills.items()):
            if spill.owner in owners:
                del self._spills[slot]
        for block_hash in found:
            self._drop(block_hash)

    # --- the end

    def warm(self, device: Sequence[WarmBlock]) -> Iterator[WarmBlock]:
        """What to keep on disk, most worth it first: parents before their children."""
        yield from device
        on_device = {block.key.block_hash for block in device}
        for entry in self._host.entries():
            if not entry.num_pins and entry.key.block_hash not in on_device:
                yield WarmBlock(entry.key, entry.owner, None, entry.slot)

    def usage(self) -> TierUsage:
        disk = self._disk
        return TierUsage(
            num_host_slots=self._host.num_slots,
            num_host_blocks=len(self._host),
            num_disk_blocks=0 if disk is None else len(disk),
            disk_bytes=0 if disk is None else disk.num_bytes,
            max_disk_bytes=0 if disk is None else disk.max_bytes,
            num_saved_total=self._num_saved_total,
            num_restored_total=self._num_restored_total,
        )

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong."""
        self._host.check_integrity()
        if self._disk is not None:
            self._disk.check_integrity()
        assert not self._fills.keys() & self._saves.keys(), "a slot is filled and saved to"
        loads = [load.slot for loads in self._loads.values() for load in loads]
        pinned = {*self._fills, *self._saves, *loads}
        assert len(pinned) == self._host.num_pinned(), f"pinned slots are not those of {pinned}"

    def _take(self, key: BlockKey, owner: str) -> int | None:
        """A slot for a block, pinned until its content has come. What it held is spilled."""
        if key.block_hash in self._host:  # another block under the same hash
            return None
        taken = self._host.take(key, owner)
        if taken is None:
            return None
        evicted, disk = taken.evicted, self._disk
        if evicted is not None and disk is not None:
            disk.touch(evicted.key.block_hash, evicted.owner)
            # Bounded here already: a spill costs its step the time of a copy.
            if disk.has_time_for(len(self._spills) + 1) and disk.wants(evicted.key.block_hash):
                self._spills[evicted.slot] = Spill(evicted.slot, evicted.key, evicted.owner)
        return taken.entry.slot

    def _settle(self, slot: int, *, is_good: bool) -> None:
        entry = self._host.at_slot(slot)
        if not is_good:
            self._host.drop(entry.key.block_hash)
        self._host.unpin(entry)

    def _drop(self, block_hash: BlockHash) -> None:
        self._fetches.refuse(block_hash)
        entry = self._host.drop(block_hash)
        if entry is not None and entry.num_pins == 1:  # else a load still needs the content
            is_noted = self._saves.pop(entry.slot, None) or self._fills.pop(entry.slot, None)
            if is_noted is not None:
                self._host.unpin(entry)
        if self._disk is not None:
            self._disk.drop(block_hash)
