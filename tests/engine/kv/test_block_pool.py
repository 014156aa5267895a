from __future__ import annotations

import pytest

from engine.errors import OutOfBlocksError
from engine.kv.block_pool import Block, BlockPool, PrefixNode
from engine.kv.hashing import BlockHash


def _publish(block: Block, parent: PrefixNode | None = None) -> None:
    block.parent = parent or PrefixNode(block_hash=BlockHash(b"root"))
    block.parent.children[block.block_id] = block


def test_blocks_are_handed_out_by_how_long_they_are_free() -> None:
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    assert [block.block_id for block in blocks] == [0, 1, 2]
    assert [block.ref_count for block in blocks] == [1, 1, 1]
    for index in (2, 0, 1):
        pool.release(blocks[index])
    assert [pool.allocate().block_id for _ in range(3)] == [2, 0, 1]


def test_allocating_without_a_free_block_raises() -> None:
    pool = BlockPool(1)
    pool.allocate()
    with pytest.raises(OutOfBlocksError, match="evict"):
        pool.allocate()


def test_a_published_block_is_cached_when_its_last_reference_goes() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    _publish(block)
    pool.acquire(block)
    pool.release(block)
    assert (pool.num_in_use, pool.num_cached, pool.num_free) == (1, 0, 1)
    pool.release(block)
    assert (pool.num_in_use, pool.num_cached, pool.num_free) == (0, 1, 1)
    assert pool.num_available == 2
    pool.acquire(block)
    assert (block.ref_count, pool.num_cached) == (1, 0)


def test_least_recently_used_is_the_one_released_first() -> None:
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    for block in blocks:
        _publish(block)
    for index in (1, 2, 0):
        pool.release(blocks[index])
    assert pool.least_recently_used() is blocks[1]
    pool.acquire(blocks[1])
    pool.release(blocks[1])
    assert pool.least_recently_used() is blocks[2]


def test_a_reclaimed_block_is_free_and_last_in_line() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    _publish(block)
    pool.release(block)
    block.parent = None
    pool.reclaim(block)
    assert [pool.allocate().block_id, pool.allocate().block_id] == [1, 0]


def test_releasing_too_often_is_refused() -> None:
    pool = BlockPool(1)
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(AssertionError, match="block 0 is released too often"):
        pool.release(block)


def test_integrity_names_lost_blocks() -> None:
    pool = BlockPool(2)
    pool.allocate().ref_count = 0
    with pytest.raises(AssertionError, match=r"lost or in two places: free \[1\]"):
        pool.check_integrity()


def test_integrity_wants_children_to_go_before_parents() -> None:
    pool = BlockPool(2)
    parent, child = pool.allocate(), pool.allocate()
    _publish(parent)
    _publish(child, parent)
    pool.release(parent)
    pool.release(child)
    with pytest.raises(AssertionError, match="block 1 would be evicted after its parent 0"):
        pool.check_integrity()
