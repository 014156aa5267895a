"""Which evicted blocks are in host memory, and in which slot. Knows hashes, no bytes.

A slot is free, or belongs to one entry. A pinned entry waits for a move and is not evicted; one
that is dropped meanwhile is not found any more, and gives its slot back when it is unpinned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from engine.kv.hashing import BlockHash, BlockKey
from engine.kv.owners import joined


@dataclass(slots=True, eq=False, kw_only=True)
class HostEntry:
    key: BlockKey
    slot: int
    owner: str
    num_pins: int = 0
    is_from_disk: bool = False  # and nobody has used it since


class Taken(NamedTuple):
    entry: HostEntry
    evicted: HostEntry | None  # whose slot it was until now


class HostTier:
    """Least recently used first. Children are saved before their parents, so they go first."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._entries: OrderedDict[BlockHash, HostEntry] = OrderedDict()
        self._dropped: dict[int, HostEntry] = {}  # by slot; still pinned
        self._at_slot: dict[int, HostEntry] = {}
        self._children: dict[BlockHash, set[BlockHash]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._entries

    def find(self, key: BlockKey) -> HostEntry | None:
        """The entry that holds just this. A colliding hash is a miss."""
        entry = self._entries.get(key.block_hash)
        return entry if entry is not None and entry.key == key else None

    def at_slot(self, slot: int) -> HostEntry:
        """Whose slot it is, dropped or not."""
        return self._at_slot[slot]

    def entries(self) -> Iterator[HostEntry]:
        """The most recently used first."""
        return reversed(self._entries.values())

    def touch(self, block_hash: BlockHash, owner: str) -> None:
        """Used just now, by `owner`."""
        entry = self._entries[block_hash]
        entry.owner = joined(entry.owner, owner)
        self._entries.move_to_end(block_hash)

    def take(self, key: BlockKey, owner: str) -> Taken | None:
        """A pinned slot for a block that is not here; None where every slot is pinned."""
        assert key.block_hash not in self._entries, "a block twice in the host tier"
        evicted = None
        if not self._free:
            evicted = self._oldest_unpinned()
            if evicted is None:
                return None
            self.drop(evicted.key.block_hash)
        entry = HostEntry(key=key, slot=self._free.pop(), owner=owner, num_pins=1)
        self._entries[key.block_hash] = self._at_slot[entry.slot] = entry
        self._children.setdefault(key.parent_hash, set()).add(key.block_hash)
        return Taken(entry, evicted)

    def pin(self, entry: HostEntry) -> None:
        entry.num_pins += 1

    def unpin(self, entry: HostEntry) -> None:
        assert entry.num_pins > 0, f"slot {entry.slot} is unpinned too often"
        entry.num_pins -= 1
        if not entry.num_pins and self._dropped.pop(entry.slot, None) is not None:
            self._give_back(entry)

    def drop(self, block_hash: BlockHash) -> HostEntry | None:
        """Nobody finds it any more; None if there is none."""
        entry = self._entries.pop(block_hash, None)
        if entry is None:
            return None
        siblings = self._children[entry.key.parent_hash]
        siblings.discard(block_hash)
        if not siblings:
            del self._children[entry.key.parent_hash]
        if entry.num_pins:
            self._dropped[entry.slot] = entry
        else:
            self._give_back(entry)
        return entry

    def children(self, block_hash: BlockHash) -> tuple[BlockHash, ...]:
        return tuple(self._children.get(block_hash, ()))

    def owned_by(self, owners: frozenset[str]) -> list[BlockHash]:
        return [key for key, entry in self._entries.items() if entry.owner in owners]

    def num_pinned(self) -> int:
        return sum(entry.num_pins > 0 for entry in self._at_slot.values())

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong."""
        entries = [*self._entries.values(), *self._dropped.values()]
        slots = sorted([*self._free, *(entry.slot for entry in entries)])
        assert slots == list(range(self.num_slots)), f"slots are lost or in two places: {slots}"
        assert all(self._at_slot[entry.slot] is entry for entry in entries), "a slot is mixed up"
        assert len(self._at_slot) == len(entries), "a free slot belongs to somebody"
        assert all(entry.num_pins for entry in self._dropped.values()), "a dropped slot is kept"
        for block_hash, entry in self._entries.items():
            assert entry.key.block_hash == block_hash, "an entry under another hash"
        by_parent = {(entry.key.parent_hash, key) for key, entry in self._entries.items()}
        listed = {(parent, child) for parent, kids in self._children.items() for child in kids}
        assert by_parent == listed, "children are not those of the entries"

    def _oldest_unpinned(self) -> HostEntry | None:
        return next((entry for entry in self._entries.values() if not entry.num_pins), None)

    def _give_back(self, entry: HostEntry) -> None:
        del self._at_slot[entry.slot]
        self._free.append(entry.slot)
