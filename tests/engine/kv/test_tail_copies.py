from __future__ import annotations

from engine.kv.block_pool import BlockPool
from engine.kv.tail_copies import PendingCopies, TailCopy


def test_copies_are_taken_once_in_order_and_give_their_sources_back() -> None:
    pool = BlockPool(4)
    copies = PendingCopies(pool)
    blocks = [pool.allocate() for _ in range(4)]
    copies.add("second", blocks[0], blocks[1], 3)
    copies.add("first", blocks[2], blocks[3], 2)
    assert copies.source_block_ids() == (0, 2)
    assert copies.take() == (TailCopy(0, 1, 3), TailCopy(2, 3, 2))
    assert [block.ref_count for block in blocks] == [0, 1, 0, 1]
    assert copies.take() == ()


def test_a_cancelled_copy_gives_its_source_back() -> None:
    pool = BlockPool(2)
    copies = PendingCopies(pool)
    source, target = pool.allocate(), pool.allocate()
    copies.add("request", source, target, 3)
    copies.cancel("request")
    copies.cancel("request")
    assert copies.take() == ()
    assert (source.ref_count, target.ref_count) == (0, 1)
