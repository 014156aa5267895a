"""One KV block as bytes in a file, with all that must be equal before it may be used.

    magic, version | identity | hash, parent | block size, payload bytes | tokens | payload | sum

`identity` covers model, KV scheme and device, `hash` besides these the rope regime and the salt.
The sum is over everything before it.
"""

from __future__ import annotations

import struct
from array import array
from hashlib import blake2b
from typing import NamedTuple

from engine.kv.hashing import BlockKey

VERSION = 1
_MAGIC = b"HEARTHKV"
_HEAD = struct.Struct("<8sH16s16s16sIQ")
_DIGEST_BYTES = 16


class BlockFileError(Exception):
    """A file is not what it should be; the message goes on after its name."""


class BlockFormat(NamedTuple):
    """What all blocks of one model, scheme and block size have in common."""

    identity: str
    block_size: int
    num_payload_bytes: int

    @property
    def num_file_bytes(self) -> int:
        num_token_bytes = 8 * self.block_size
        return _HEAD.size + num_token_bytes + self.num_payload_bytes + _DIGEST_BYTES

    def digest(self) -> str:
        """A name for it, other for every version."""
        return _digest(repr((VERSION, *self)).encode()).hex()


def encode_block(block_format: BlockFormat, key: BlockKey, payload: bytes) -> list[bytes]:
    """The file's content, in parts."""
    head = _head(block_format, key) + array("q", key.token_ids).tobytes()
    return [head, payload, _digest(head, payload)]


def decode_block(block_format: BlockFormat, key: BlockKey, content: bytes) -> bytes:
    """The payload.

    Raises:
        BlockFileError: it is not this block, whole and unchanged.
    """
    if len(content) != block_format.num_file_bytes:
        raise BlockFileError(
            f"has {len(content)} bytes instead of {block_format.num_file_bytes}: it is truncated "
            "or of another format"
        )
    head = _head(block_format, key)
    if content[: len(head)] != head:
        raise BlockFileError("is of another model, format or block")
    start = len(head) + 8 * block_format.block_size
    if content[len(head) : start] != array("q", key.token_ids).tobytes():
        raise BlockFileError("holds other tokens")
    body = memoryview(content)
    if _digest(body[:-_DIGEST_BYTES]) != content[-_DIGEST_BYTES:]:
        raise BlockFileError("is damaged")
    return content[start:-_DIGEST_BYTES]


def _head(block_format: BlockFormat, key: BlockKey) -> bytes:
    return _HEAD.pack(
        _MAGIC,
        VERSION,
        _digest(block_format.identity.encode()),
        key.block_hash,
        key.parent_hash,
        block_format.block_size,
        block_format.num_payload_bytes,
    )


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
