from __future__ import annotations

import pytest

from engine.kv.block_pool import BlockPool
from engine.kv.block_table import BlockTable
from engine.kv.hashing import PrefixHashes


def _make_table(pool: BlockPool, num_blocks: int) -> BlockTable:
    table = BlockTable(hashes=PrefixHashes("model", 4, ""))
    table.extend([pool.allocate() for _ in range(num_blocks)])
    return table


def test_block_ids_follow_every_change() -> None:
    pool = BlockPool(4)
    table = _make_table(pool, 2)
    assert table.block_ids == (0, 1)
    assert table.block_ids is table.block_ids
    table.extend([pool.allocate()])
    assert table.block_ids == (0, 1, 2)
    table.replace(1, pool.allocate())
    assert table.block_ids == (0, 3, 2)


def test_previous_of_the_first_block_is_none() -> None:
    table = _make_table(BlockPool(2), 2)
    assert table.previous(0) is None
    assert table.previous(1) is table.blocks[0]


def test_integrity_refuses_a_block_twice() -> None:
    table = _make_table(BlockPool(2), 2)
    table.replace(1, table.blocks[0])
    with pytest.raises(AssertionError, match=r"a block twice in \(0, 0\)"):
        table.check_integrity(4)


def test_integrity_refuses_a_shared_block_that_is_not_published() -> None:
    pool = BlockPool(1)
    table = _make_table(pool, 1)
    pool.acquire(table.blocks[0])
    with pytest.raises(AssertionError, match="block 0 at 0 is not published, but shared"):
        table.check_integrity(4)
