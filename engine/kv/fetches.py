"""Who waits for which blocks to be read from disk, and until when. Time is passed in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.kv.hashing import BlockHash, BlockKey

FETCH_LIMIT_S = 3.0  # who has waited so long starts with what is there


@dataclass(slots=True)
class _Fetch:
    missing: set[BlockHash]
    deadline_s: float


class Fetches:
    def __init__(self) -> None:
        self._by_request: dict[str, _Fetch] = {}
        self._reading: set[BlockHash] = set()
        self._unwanted: set[BlockHash] = set()

    @property
    def num_reading(self) -> int:
        return len(self._reading)

    def begin(
        self, request_id: str, keys: Collection[BlockKey], now_s: float, max_reading: int
    ) -> list[BlockKey]:
        """Let a request wait for these, as far as there is room; returns those to be read."""
        missing: set[BlockHash] = set()
        new: list[BlockKey] = []
        for key in keys:
            if key.block_hash not in self._reading:
                if len(self._reading) >= max_reading:
                    break
                self._reading.add(key.block_hash)
                new.append(key)
            missing.add(key.block_hash)
        if missing:
            self._by_request[request_id] = _Fetch(missing, now_s + FETCH_LIMIT_S)
        return new

    def is_waiting(self, request_id: str, now_s: float) -> bool:
        fetch = self._by_request.get(request_id)
        if fetch is None:
            return False
        if not fetch.missing or now_s >= fetch.deadline_s:
            del self._by_request[request_id]
            return False
        return True

    def end(self, block_hash: BlockHash) -> bool:
        """A block has been read, or cannot be; False if it is not wanted any more."""
        self._reading.discard(block_hash)
        for fetch in self._by_request.values():
            fetch.missing.discard(block_hash)
        if block_hash in self._unwanted:
            self._unwanted.discard(block_hash)
            return False
        return True

    def refuse(self, block_hash: BlockHash) -> None:
        """What is being read of this block must not be used."""
        if block_hash in self._reading:
            self._unwanted.add(block_hash)

    def cancel(self, request_id: str) -> None:
        self._by_request.pop(request_id, None)
