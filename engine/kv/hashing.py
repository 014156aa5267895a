"""Chained hashes of whole blocks: equal hash, almost surely the same tokens from position 0 on.

The chain starts at a root that covers everything else KV depends on: the model, the KV scheme, the
block size, and the namespace that keeps rope regimes and users with a salt apart. A hash only finds
a block; whoever uses it compares tokens and parent too. On the device the parent is a block that
was compared itself; below it only the parent's hash is known: its 128 bits are trusted there.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, NewType

BlockHash = NewType("BlockHash", bytes)


class BlockKey(NamedTuple):
    """What a whole block holds; compared as a whole wherever a hash has found one."""

    block_hash: BlockHash
    parent_hash: BlockHash
    token_ids: tuple[int, ...]


_DIGEST_BYTES = 16


def root_hash(identity: str, block_size: int, namespace: str) -> BlockHash:
    """`identity`: of what all KV depends on, see ModelInfo.kv_identity."""
    return _digest(repr((identity, block_size, namespace)).encode())


def hash_block(parent: BlockHash, token_ids: Sequence[int]) -> BlockHash:
    return _digest(parent + array("q", token_ids).tobytes())


class PrefixHashes:
    """The hashes of one growing token list; each whole block is hashed once, when first asked."""

    __slots__ = ("_block_size", "_hashes", "namespace", "root")

    def __init__(self, identity: str, block_size: int, namespace: str) -> None:
        self.namespace = namespace
        self.root = root_hash(identity, block_size, namespace)
        self._block_size = block_size
        self._hashes: list[BlockHash] = []

    def at(self, token_ids: Sequence[int], index: int) -> BlockHash:
        """Of whole block `index`. Tokens may be appended between calls, never changed."""
        hashes, block_size = self._hashes, self._block_size
        while len(hashes) <= index:
            start = len(hashes) * block_size
            parent = hashes[-1] if hashes else self.root
            hashes.append(hash_block(parent, token_ids[start : start + block_size]))
        return hashes[index]

    def key(self, token_ids: Sequence[int], index: int) -> BlockKey:
        """Of whole block `index`, with what is compared besides its hash."""
        block_hash = self.at(token_ids, index)
        parent = self._hashes[index - 1] if index else self.root
        start = index * self._block_size
        return BlockKey(block_hash, parent, tuple(token_ids[start : start + self._block_size]))


def _digest(data: bytes) -> BlockHash:
    # hash() is salted per process and only 64 bits wide
    return BlockHash(blake2b(data, digest_size=_DIGEST_BYTES).digest())
