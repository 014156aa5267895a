"""A disk cache's store that works when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from engine.kv.disk_tier import BlockFile, DiskTier, ReadDone, WriteDone
from engine.kv.hashing import BlockKey

FILE_BYTES = 100


class FakeDisk:
    """Implements DiskStore in memory; files are of 100 bytes each. `work` does what waits."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[BlockKey, bytes]] = {}
        self.ages_s: dict[str, float] = {}
        self.is_full = False
        self.is_quiet = False
        self.pending_bytes = 0
        self._reads: deque[Callable[[], None]] = deque()
        self._others: deque[Callable[[], None]] = deque()
        self._results: list[ReadDone | WriteDone] = []

    def file_of(self, key: BlockKey, owner: str) -> BlockFile:
        return BlockFile(f"{key.block_hash.hex()}-{owner}", FILE_BYTES)

    def read(self, file: BlockFile, key: BlockKey, age_s: float) -> None:
        self._reads.append(lambda: self._read(file, key))

    def write(self, file: BlockFile, key: BlockKey, payload: bytes, age_s: float) -> None:
        self._others.append(lambda: self._write(file, key, payload, age_s))

    def refresh(self, file: BlockFile, age_s: float) -> None:
        self.ages_s[file.name] = age_s

    def delete(self, file: BlockFile) -> None:
        self._others.append(lambda: self._delete(file))

    def results(self) -> list[ReadDone | WriteDone]:
        results, self._results = self._results, []
        return results

    def work(self, num_tasks: int = 1_000_000) -> None:
        for _ in range(num_tasks):
            if not (self._reads or self._others):
                return
            (self._reads or self._others).popleft()()

    def _read(self, file: BlockFile, key: BlockKey) -> None:
        found, payload = self.files.get(file.name, (None, None))
        self._results.append(ReadDone(key, payload if found == key else None))

    def _write(self, file: BlockFile, key: BlockKey, payload: bytes, age_s: float) -> None:
        self.is_quiet |= self.is_full
        if not self.is_quiet:
            self.files[file.name] = (key, payload)
            self.ages_s[file.name] = age_s
        self._results.append(WriteDone(key.block_hash, not self.is_quiet))

    def _delete(self, file: BlockFile) -> None:
        self.files.pop(file.name, None)


def make_disk_tier(disk: FakeDisk, num_blocks: int = 1000) -> DiskTier:
    return DiskTier(disk, num_blocks * FILE_BYTES, FILE_BYTES)
