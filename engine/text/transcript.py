"""The token ids of conversations so far, so that a reply is never tokenized again."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple


class TranscriptKey(NamedTuple):
    """Whose conversation, and its rendered text up to the end of a reply."""

    owner: str
    text: str


class TranscriptStore:
    """Least recently used first out, bounded by the number of ids. Safe from any thread."""

    def __init__(self, max_token_ids: int = 2_000_000) -> None:
        self._max_token_ids = max_token_ids
        self._num_token_ids = 0
        self._entries: OrderedDict[TranscriptKey, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: TranscriptKey, token_ids: Sequence[int]) -> None:
        if len(token_ids) > self._max_token_ids:
            return
        with self._lock:
            self._remove(key)
            self._entries[key] = array("i", token_ids)
            self._num_token_ids += len(token_ids)
            while self._num_token_ids > self._max_token_ids:
                self._remove(next(iter(self._entries)))

    def get(self, key: TranscriptKey) -> tuple[int, ...] | None:
        with self._lock:
            token_ids = self._entries.get(key)
            if token_ids is None:
                return None
            self._entries.move_to_end(key)
            return tuple(token_ids)

    def _remove(self, key: TranscriptKey) -> None:
        removed = self._entries.pop(key, None)
        if removed is not None:
            self._num_token_ids -= len(removed)
