"""The token ids of conversations so far, so that a reply is never tokenized again."""

from __future__ import annotations

import hashlib
import sys
import threading
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

_BYTES_PER_ID = 4
_COMPRESSION = 1  # ids compress little more at higher levels, and this is in the way of an answer


class Transcript(NamedTuple):
    """A conversation's ids up to the end of a reply, for a caller who keeps them across restarts.

    It is given back with the next request (`ChatRequest.known_transcripts`) and used only where
    tokenizer and rendered text are the same.
    """

    digest: bytes  # SHA-256 over the tokenizer's identity and the rendered text
    token_ids: bytes  # zlib over little-endian int32


class TranscriptKey(NamedTuple):
    """Whose conversation, and the digest of its rendered text up to the end of a reply."""

    owner: str
    digest: bytes


def transcript_digest(tokenizer_identity: bytes, text: str) -> bytes:
    """What a transcript is found by: `text` is the rendered conversation up to a reply's end."""
    return hashlib.sha256(tokenizer_identity + text.encode()).digest()


def pack_transcript(digest: bytes, token_ids: Sequence[int]) -> Transcript:
    return Transcript(digest, zlib.compress(_little_endian(token_ids).tobytes(), _COMPRESSION))


def unpack_transcript(
    transcript: Transcript, *, max_tokens: int, vocab_size: int
) -> tuple[int, ...] | None:
    """Its ids; None where it is damaged, longer than `max_tokens` or not of this vocabulary."""
    max_bytes = max_tokens * _BYTES_PER_ID
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(transcript.token_ids, max_bytes + 1)
    except zlib.error:
        return None
    is_whole = decompressor.eof and not decompressor.unused_data
    if not is_whole or not data or len(data) > max_bytes or len(data) % _BYTES_PER_ID:
        return None
    token_ids = array("i")
    token_ids.frombytes(data)
    if sys.byteorder == "big":
        token_ids.byteswap()
    if min(token_ids) < 0 or max(token_ids) >= vocab_size:
        return None
    return tuple(token_ids)


def _little_endian(token_ids: Sequence[int]) -> array[int]:
    packed = array("i", token_ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed


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
