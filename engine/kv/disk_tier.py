"""Which blocks are on disk, and which go when room is short. Touches no file itself.

Files are read, written and deleted by a DiskStore, whose results are collected before each step.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.kv.hashing import BlockHash, BlockKey
from engine.kv.owners import joined

MAX_PENDING_BYTES = 256 * 1024**2  # of blocks that wait to be written
_AGE_STEP_S = 0.001  # between a block and the one before it in a chain: parents stay the newest


class BlockFile(NamedTuple):
    """A file as its name and its size describe it. `name`: relative to the cache's directory."""

    name: str
    num_bytes: int


class OwnFile(NamedTuple):
    """A file of this model and format, not read yet."""

    block_hash: BlockHash
    parent_hash: BlockHash
    owner: str
    file: BlockFile


class ForeignFile(NamedTuple):
    """A file of another model or format."""

    owner: str
    file: BlockFile


class ReadDone(NamedTuple):
    """payload None: the file is not there, or not what it should be."""

    key: BlockKey
    payload: bytes | None


class WriteDone(NamedTuple):
    block_hash: BlockHash
    was_written: bool


class DiskStore(Protocol):
    """Works in the background. Reads go before writes; writes and deletions keep their order."""

    @property
    def pending_bytes(self) -> int:
        """Of blocks that wait to be written."""

    @property
    def is_quiet(self) -> bool:
        """Nothing is written any more, because writing has failed."""

    def file_of(self, key: BlockKey, owner: str) -> BlockFile: ...

    def read(self, file: BlockFile, key: BlockKey, age_s: float) -> None:
        """`age_s`, here and below: as if it were used so long ago."""

    def write(self, file: BlockFile, key: BlockKey, payload: bytes, age_s: float) -> None: ...

    def refresh(self, file: BlockFile, age_s: float) -> None: ...

    def delete(self, file: BlockFile) -> None: ...

    def results(self) -> list[ReadDone | WriteDone]:
        """What has been done since the last call."""


@dataclass(slots=True, eq=False, kw_only=True)
class _DiskEntry:
    parent_hash: BlockHash
    owner: str
    file: BlockFile
    is_written: bool


class DiskTier:
    """Within `max_bytes`. Other models' files count too, and go first, the oldest first.

    Args:
        num_file_bytes: what one block takes up.
        found: this model's files, the least recently used first.
        foreign: all others of the cache.
    """

    def __init__(
        self,
        store: DiskStore,
        max_bytes: int,
        num_file_bytes: int,
        found: Iterable[OwnFile] = (),
        foreign: Iterable[ForeignFile] = (),
    ) -> None:
        self.max_bytes = max_bytes
        self.num_file_bytes = num_file_bytes
        self._store = store
        self._entries: OrderedDict[BlockHash, _DiskEntry] = OrderedDict()
        self._foreign = deque(foreign)
        self._children: dict[BlockHash, set[BlockHash]] = {}
        self.num_bytes = sum(item.file.num_bytes for item in self._foreign)
        for block in found:
            self.drop(block.block_hash)  # an older file of the same block
            self._add(block, is_written=True)
        self._make_room(0)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._entries

    def can_read(self, block_hash: BlockHash) -> bool:
        entry = self._entries.get(block_hash)
        return entry is not None and entry.is_written

    def wants(self, block_hash: BlockHash) -> bool:
        """Whether writing this block makes sense."""
        return block_hash not in self._entries and not self._store.is_quiet

    def has_time_for(self, num_blocks: int) -> bool:
        """Whether so many more may wait to be written."""
        num_bytes = self._store.pending_bytes + num_blocks * self.num_file_bytes
        return num_bytes <= MAX_PENDING_BYTES

    def touch(self, block_hash: BlockHash, owner: str) -> None:
        """Used just now; what is not here is ignored."""
        entry = self._entries.get(block_hash)
        if entry is not None:
            entry.owner = joined(entry.owner, owner)
            self._entries.move_to_end(block_hash)

    def owner_of(self, block_hash: BlockHash) -> str | None:
        """Whose it is; None: it is not here."""
        entry = self._entries.get(block_hash)
        return None if entry is None else entry.owner

    def read(self, keys: list[BlockKey]) -> None:
        """Begin to read blocks of one chain, its beginning first."""
        for index, key in enumerate(keys):
            file = self._entries[key.block_hash].file
            self._store.read(file, key, index * _AGE_STEP_S)
        for key in reversed(keys):
            self._entries.move_to_end(key.block_hash)

    def put(self, key: BlockKey, owner: str, payload: bytes, rank: int = 0) -> bool:
        """Begin to write a block; False where there is no room, or no time, for it.

        `rank`, of several that are put at once: 0 is the one to be evicted last.
        """
        num_bytes = self.num_file_bytes
        has_room = num_bytes <= self.max_bytes and self.has_time_for(1)
        if not (has_room and self.wants(key.block_hash)):
            return False
        self._make_room(num_bytes)
        file = self._store.file_of(key, owner)
        self._add(OwnFile(key.block_hash, key.parent_hash, owner, file), is_written=False)
        self._store.write(file, key, payload, rank * _AGE_STEP_S)
        return True

    def refresh(self, block_hash: BlockHash, rank: int) -> None:
        """Used just now, like `put`; what is not here is ignored."""
        entry = self._entries.get(block_hash)
        if entry is not None:
            self._entries.move_to_end(block_hash)
            self._store.refresh(entry.file, rank * _AGE_STEP_S)

    def drop(self, block_hash: BlockHash) -> None:
        """Remove the block and its file. What of it waits to be written is deleted after that."""
        entry = self._entries.pop(block_hash, None)
        if entry is None:
            return
        self.num_bytes -= entry.file.num_bytes
        siblings = self._children[entry.parent_hash]
        siblings.discard(block_hash)
        if not siblings:
            del self._children[entry.parent_hash]
        self._store.delete(entry.file)

    def children(self, block_hash: BlockHash) -> tuple[BlockHash, ...]:
        return tuple(self._children.get(block_hash, ()))

    def owned_by(self, owners: frozenset[str]) -> list[BlockHash]:
        return [key for key, entry in self._entries.items() if entry.owner in owners]

    def forget_foreign(self, owners: frozenset[str]) -> None:
        """Remove other models' files of these owners."""
        kept: deque[ForeignFile] = deque()
        for foreign in self._foreign:
            if foreign.owner in owners:
                self._drop_foreign(foreign)
            else:
                kept.append(foreign)
        self._foreign = kept

    def collect(self) -> list[ReadDone]:
        """The blocks that were read; a file that is not right is removed."""
        reads: list[ReadDone] = []
        for result in self._store.results():
            if isinstance(result, ReadDone):
                reads.append(result)
                if result.payload is None:
                    self.drop(result.key.block_hash)
            elif not result.was_written:
                self.drop(result.block_hash)
            elif (entry := self._entries.get(result.block_hash)) is not None:
                entry.is_written = True
        return reads

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong."""
        own = sum(entry.file.num_bytes for entry in self._entries.values())
        foreign = sum(item.file.num_bytes for item in self._foreign)
        assert self.num_bytes == own + foreign, f"{self.num_bytes} bytes, {own} and {foreign}"
        assert self.num_bytes <= self.max_bytes, f"{self.num_bytes} of {self.max_bytes} bytes"
        by_parent = {(entry.parent_hash, key) for key, entry in self._entries.items()}
        listed = {(parent, child) for parent, kids in self._children.items() for child in kids}
        assert by_parent == listed, "children are not those of the entries"

    def _add(self, block: OwnFile, *, is_written: bool) -> None:
        self._entries[block.block_hash] = _DiskEntry(
            parent_hash=block.parent_hash,
            owner=block.owner,
            file=block.file,
            is_written=is_written,
        )
        self._children.setdefault(block.parent_hash, set()).add(block.block_hash)
        self.num_bytes += block.file.num_bytes

    def _make_room(self, num_bytes: int) -> None:
        while self.num_bytes + num_bytes > self.max_bytes:
            if self._foreign:
                self._drop_foreign(self._foreign.popleft())
            else:
                self.drop(next(iter(self._entries)))

    def _drop_foreign(self, foreign: ForeignFile) -> None:
        self.num_bytes -= foreign.file.num_bytes
        self._store.delete(foreign.file)
