from __future__ import annotations

import pytest

from engine.kv import hashing
from engine.kv.hashing import PrefixHashes, hash_block, root_hash


def test_root_covers_identity_block_size_and_salt() -> None:
    roots = {
        root_hash("model", 16, ""),
        root_hash("model int8", 16, ""),
        root_hash("model", 32, ""),
        root_hash("model", 16, "anna"),
        root_hash("model', 16, 'anna", 16, ""),
    }
    assert len(roots) == 5
    assert root_hash("model", 16, "anna") == root_hash("model", 16, "anna")


def test_hash_depends_on_parent_and_on_the_order_of_tokens() -> None:
    root = root_hash("model", 4, "")
    first = hash_block(root, [1, 2, 3, 4])
    assert first == hash_block(root, (1, 2, 3, 4))
    assert len({root, first, hash_block(first, [1, 2, 3, 4]), hash_block(root, [4, 3, 2, 1])}) == 4


def test_prefix_hashes_chain_from_the_root() -> None:
    hashes = PrefixHashes("model", 2, "anna")
    first = hash_block(root_hash("model", 2, "anna"), [1, 2])
    assert hashes.at([1, 2, 3, 4, 5], 1) == hash_block(first, [3, 4])
    assert hashes.at([1, 2, 3, 4, 5], 0) == first


def test_each_whole_block_is_hashed_once_while_the_list_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[tuple[int, ...]] = []

    def counting(parent: hashing.BlockHash, token_ids: list[int]) -> hashing.BlockHash:
        hashed.append(tuple(token_ids))
        return hash_block(parent, token_ids)

    monkeypatch.setattr(hashing, "hash_block", counting)
    hashes = PrefixHashes("model", 2, "")
    token_ids = [1, 2, 3]
    hashes.at(token_ids, 0)
    token_ids += [4, 5]
    hashes.at(token_ids, 1)
    hashes.at(token_ids, 0)
    assert hashed == [(1, 2), (3, 4)]
