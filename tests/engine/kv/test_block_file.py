"""A block in a file is only taken for what it is, whole and unchanged."""

from __future__ import annotations

import random

import pytest

from engine.kv.block_file import BlockFileError, BlockFormat, decode_block, encode_block
from engine.kv.hashing import BlockKey, PrefixHashes

FORMAT = BlockFormat("model/int8", 4, 100)
TOKENS = [5, 6, 7, 8, 9, 10, 11, 2**40]
KEY = PrefixHashes("model/int8", 4, "anna").key(TOKENS, 1)
PAYLOAD = bytes(range(100))
CONTENT = b"".join(encode_block(FORMAT, KEY, PAYLOAD))


def test_what_was_written_is_read() -> None:
    assert decode_block(FORMAT, KEY, CONTENT) == PAYLOAD
    assert len(CONTENT) == FORMAT.num_file_bytes


@pytest.mark.parametrize("num_bytes", [0, 1, 50, len(CONTENT) - 1])
def test_a_truncated_file_is_refused(num_bytes: int) -> None:
    with pytest.raises(BlockFileError, match="it is truncated"):
        decode_block(FORMAT, KEY, CONTENT[:num_bytes])


def test_a_longer_file_is_refused() -> None:
    with pytest.raises(BlockFileError, match="truncated or of another format"):
        decode_block(FORMAT, KEY, CONTENT + b"x")


@pytest.mark.parametrize("position", random.Random(1).sample(range(len(CONTENT)), 40))
def test_a_changed_byte_anywhere_is_noticed(position: int) -> None:
    changed = bytearray(CONTENT)
    changed[position] ^= 1
    with pytest.raises(BlockFileError):
        decode_block(FORMAT, KEY, bytes(changed))


@pytest.mark.parametrize(
    "other",
    [
        BlockFormat("model/none", 4, 100),
        BlockFormat("another/int8", 4, 100),
    ],
)
def test_another_models_file_is_refused(other: BlockFormat) -> None:
    with pytest.raises(BlockFileError, match="another model"):
        decode_block(other, KEY, CONTENT)
    assert other.digest() != FORMAT.digest()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (PrefixHashes("model/int8", 4, "ben").key(TOKENS, 1), "another model, format or block"),
        (PrefixHashes("model/int8", 4, "anna").key(TOKENS, 0), "another model, format or block"),
        (KEY._replace(parent_hash=KEY.block_hash), "another model, format or block"),
        (BlockKey(KEY.block_hash, KEY.parent_hash, (9, 10, 11, 12)), "other tokens"),
    ],
)
def test_another_blocks_file_is_refused(other: BlockKey, reason: str) -> None:
    with pytest.raises(BlockFileError, match=reason):
        decode_block(FORMAT, other, CONTENT)
