from __future__ import annotations

import pytest

from engine.kv import hashing
from engine.kv.block_pool import Block
from engine.kv.hashing import BlockHash, PrefixHashes, hash_block
from engine.kv.prefix_cache import MAX_TAIL_CANDIDATES, NoPrefixCache, PrefixCache


def _hashes(namespace: str = "") -> PrefixHashes:
    return PrefixHashes("model", 4, namespace)


def _publish_whole(
    cache: PrefixCache, token_ids: list[int], first_block_id: int = 0, namespace: str = ""
) -> list[Block]:
    blocks: list[Block] = []
    hashes = _hashes(namespace)
    for index in range(len(token_ids) // 4):
        block = Block(block_id=first_block_id + index)
        previous = blocks[-1] if blocks else None
        assert cache.publish(previous, block, hashes, token_ids, index) is block
        blocks.append(block)
    return blocks


def _publish_tail(
    cache: PrefixCache, previous: Block | None, block_id: int, token_ids: tuple[int, ...]
) -> Block:
    block = Block(block_id=block_id)
    assert cache.publish_tail(previous, block, _hashes(), token_ids) is block
    return block


def test_whole_blocks_match_up_to_the_first_difference() -> None:
    cache = PrefixCache(4)
    blocks = _publish_whole(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    match = cache.match(_hashes(), [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert match.blocks == tuple(blocks)
    assert match.tail is None
    match = cache.match(_hashes(), [0, 2, 3, 4, 5, 6, 7, 8, 9])
    assert match.blocks == ()
    cache.check_integrity(blocks)


def test_a_last_whole_block_matches_in_part_to_leave_a_token() -> None:
    cache = PrefixCache(4)
    first, second = _publish_whole(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    match = cache.match(_hashes(), [1, 2, 3, 4, 5, 6, 7, 8])
    assert match.blocks == (first,)
    assert match.tail == (second, 3, False)
    assert match.next_hash is None


@pytest.mark.parametrize("token_ids", [[], [1]])
def test_nothing_matches_a_list_without_a_token_to_spare(token_ids: list[int]) -> None:
    cache = PrefixCache(4)
    _publish_tail(cache, None, 0, (1, 2))
    assert cache.match(_hashes(), token_ids) == ((), None, None)


def test_next_hash_is_that_of_the_first_whole_block_to_compute() -> None:
    cache = PrefixCache(4)
    _publish_whole(cache, [1, 2, 3, 4])
    token_ids = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert cache.match(_hashes(), token_ids).next_hash == _hashes().at(token_ids, 1)
    assert cache.match(_hashes(), token_ids[:8]).next_hash == _hashes().at(token_ids, 1)
    assert cache.match(_hashes(), token_ids[:7]).next_hash is None


def test_the_longest_tail_wins_then_in_place_then_the_most_recent() -> None:
    cache = PrefixCache(4)
    _publish_tail(cache, None, 0, (1, 9))
    longest = _publish_tail(cache, None, 1, (1, 2))
    _publish_tail(cache, None, 2, (1, 2, 8))
    assert cache.match(_hashes(), [1, 2, 3]).tail == (longest, 2, True)
    longest.ref_count = 1
    newer = _publish_tail(cache, None, 3, (1, 2, 7))
    assert cache.match(_hashes(), [1, 2, 3]).tail == (newer, 2, False)
    cache.touch(longest)
    assert cache.match(_hashes(), [1, 2, 3]).tail == (longest, 2, False)


def test_a_whole_block_serves_as_a_tail() -> None:
    cache = PrefixCache(4)
    (whole,) = _publish_whole(cache, [1, 2, 3, 4])
    assert cache.match(_hashes(), [1, 2, 3, 9, 9, 9]).tail == (whole, 3, False)


def test_the_search_for_a_tail_is_bounded() -> None:
    cache = PrefixCache(4)
    oldest = _publish_tail(cache, None, 0, (1, 2, 3))
    others = [_publish_tail(cache, None, n, (1, 9, n)) for n in range(1, MAX_TAIL_CANDIDATES + 1)]
    assert cache.match(_hashes(), [1, 2, 3, 4]).tail == (others[-1], 1, False)
    cache.touch(oldest)
    assert cache.match(_hashes(), [1, 2, 3, 4]).tail == (oldest, 3, True)


def test_publishing_the_same_again_returns_what_is_there() -> None:
    cache = PrefixCache(4)
    (whole,) = _publish_whole(cache, [1, 2, 3, 4])
    assert cache.publish(None, Block(block_id=1), _hashes(), [1, 2, 3, 4], 0) is whole
    tail = _publish_tail(cache, whole, 2, (5, 6, 7))
    assert cache.publish_tail(whole, Block(block_id=3), _hashes(), (5, 6, 7)) is tail
    assert cache.publish_tail(whole, Block(block_id=3), _hashes(), (5,)) is tail
    _publish_tail(cache, whole, 4, (5, 6, 9))


def test_nothing_is_published_after_a_block_that_is_not() -> None:
    cache = PrefixCache(4)
    unpublished, block = Block(block_id=0), Block(block_id=1)
    assert cache.publish(unpublished, block, _hashes(), [1, 2, 3, 4, 5, 6, 7, 8], 1) is None
    assert cache.publish_tail(unpublished, block, _hashes(), (5, 6)) is None
    cache.check_integrity([unpublished, block])


def test_salts_have_trees_of_their_own() -> None:
    cache = PrefixCache(4)
    blocks = _publish_whole(cache, [1, 2, 3, 4], namespace="anna")
    assert cache.match(_hashes("anna"), [1, 2, 3, 4, 5]).blocks == tuple(blocks)
    assert cache.match(_hashes("ben"), [1, 2, 3, 4, 5]).blocks == ()
    assert cache.match(_hashes("ben"), [1, 2, 3, 4, 5]).tail is None


def test_an_unpublished_block_is_forgotten_with_its_root() -> None:
    cache = PrefixCache(4)
    first, second = _publish_whole(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    with pytest.raises(AssertionError, match="block 0 has published children"):
        cache.unpublish(first)
    cache.unpublish(second)
    cache.unpublish(first)
    assert cache.match(_hashes(), [1, 2, 3, 4, 5]).blocks == ()
    assert (first.block_hash, first.parent, first.token_ids) == (None, None, ())
    assert cache._roots == {}
    cache.check_integrity([first, second])


def test_subtree_has_children_before_parents() -> None:
    cache = PrefixCache(4)
    first, second = _publish_whole(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    tail = _publish_tail(cache, second, 2, (9,))
    sibling = _publish_tail(cache, first, 3, (6,))
    assert cache.subtree(first) == [tail, sibling, second, first]


def test_a_colliding_hash_is_refused_by_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "hash_block", lambda parent, token_ids: BlockHash(b"same"))
    cache = PrefixCache(4)
    (block,) = _publish_whole(cache, [1, 2, 3, 4])
    assert cache.match(_hashes(), [9, 2, 3, 4, 5]).blocks == ()
    assert cache.publish(None, Block(block_id=1), _hashes(), [9, 2, 3, 4], 0) is None
    assert cache.match(_hashes(), [1, 2, 3, 4, 5]).blocks == (block,)


def test_a_colliding_hash_is_refused_by_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_parent(parent: BlockHash, token_ids: list[int]) -> BlockHash:
        return hash_block(BlockHash(b""), token_ids)

    monkeypatch.setattr(hashing, "hash_block", without_parent)
    cache = PrefixCache(4)
    anna = _publish_whole(cache, [1, 2, 3, 4, 5, 6, 7, 8], namespace="anna")
    other = Block(block_id=9)
    assert cache.match(_hashes(), [5, 6, 7, 8, 9]).blocks == ()
    assert cache.match(_hashes("ben"), [1, 2, 3, 4, 5]).blocks == ()
    assert cache.publish(None, other, _hashes("ben"), [5, 6, 7, 8], 0) is None
    assert anna[1].parent is anna[0]


def test_integrity_finds_a_wrong_hash_and_a_lost_child() -> None:
    cache = PrefixCache(4)
    blocks = _publish_whole(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    blocks[1].token_ids = (5, 6, 7, 9)
    with pytest.raises(AssertionError, match="block 1: wrong hash"):
        cache.check_integrity(blocks)
    del blocks[0].children[1]
    with pytest.raises(AssertionError, match="reached"):
        cache.check_integrity(blocks)


def test_without_caching_nothing_is_matched_or_published() -> None:
    cache, block = NoPrefixCache(4), Block(block_id=0)
    assert cache.publish(None, block, _hashes(), [1, 2, 3, 4], 0) is None
    assert cache.publish_tail(None, block, _hashes(), (1, 2)) is None
    assert cache.match(_hashes(), [1, 2, 3, 4, 5, 6, 7, 8, 9]) == ((), None, None)
    assert cache.whole_hashes(_hashes(), [1, 2, 3, 4], 0, 1) == ()
    assert not block.is_published
