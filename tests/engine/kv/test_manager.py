"""Exact block ids, reference counts and eviction order. Blocks have four tokens."""

from __future__ import annotations

import pytest

from engine.kv.hashing import PrefixHashes
from engine.kv.manager import KVCacheManager, PoolUsage
from engine.kv.matching import PrefixMatch, TailMatch
from engine.kv.tail_copies import TailCopy
from tests.factories import cache_tokens, compute_tokens, make_kv_manager

TEN = list(range(10, 20))


def _ref_counts(kv: KVCacheManager) -> list[int]:
    return [block.ref_count for block in kv._pool.blocks]


def _cached_in_order(kv: KVCacheManager) -> list[int]:
    """As they would be evicted."""
    return list(kv._pool._cached)


def _state(kv: KVCacheManager) -> tuple[object, ...]:
    return (
        _ref_counts(kv),
        _cached_in_order(kv),
        [block.block_id for block in kv._pool._free],
        [list(block.children) for block in kv._pool.blocks],
        kv.usage(),
    )


def test_a_new_request_gets_blocks_as_it_extends() -> None:
    kv = make_kv_manager()
    assert kv.start("a", TEN) == 0
    assert kv.block_ids("a") == ()
    assert kv.extend("a", 5)
    assert kv.block_ids("a") == (0, 1)
    assert kv.extend("a", 8)
    assert kv.block_ids("a") == (0, 1)
    assert kv.extend("a", 10)
    assert kv.block_ids("a") == (0, 1, 2)
    assert kv.usage() == PoolUsage(8, 3, 0, 5, 0)
    kv.check_integrity()


def test_whole_blocks_are_shared_while_their_request_still_runs() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", TEN)
    assert kv.start("b", [*TEN[:8], 1, 2]) == 8
    assert kv.block_ids("b") == (0, 1)
    assert _ref_counts(kv) == [2, 2, 1, 0, 0, 0, 0, 0]
    kv.check_integrity()


def test_nothing_is_matched_before_it_is_committed() -> None:
    kv = make_kv_manager()
    kv.start("a", TEN)
    kv.extend("a", 10)
    assert kv.match_prefix("b", TEN).num_tokens == 0
    kv.commit("a", TEN, 7)
    assert kv.match_prefix("b", TEN).block_ids == (0,)


def test_match_prefix_says_what_start_will_do_and_changes_nothing() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, TEN)
    before = _state(kv)
    match = kv.match_prefix("b", [*TEN, 1, 2, 3])
    next_hash = PrefixHashes("model", 4, "").at([*TEN, 1, 2], 2)
    assert match == PrefixMatch((0, 1), TailMatch(2, 2), 10, next_hash)
    assert _state(kv) == before
    assert kv.start("b", [*TEN, 1, 2, 3]) == 10


def test_an_unreferenced_tail_is_extended_in_place() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, TEN)
    longer = [*TEN, 1, 2, 3]
    assert kv.start("b", longer) == 10
    assert kv.block_ids("b") == (0, 1, 2)
    assert kv.take_copies() == ()
    assert kv.match_prefix("c", longer).tail is None  # it is b's alone now
    kv.extend("b", 13)
    kv.commit("b", longer, 13)
    assert kv.block_ids("b") == (0, 1, 2, 3)
    assert kv.match_prefix("c", longer).block_ids == (0, 1, 2)
    kv.check_integrity()


def test_a_tail_wanted_only_in_part_is_copied() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, [*TEN, 20])
    assert kv.start("b", [*TEN, 1]) == 10
    assert kv.block_ids("b") == (0, 1, 3)
    assert _ref_counts(kv) == [1, 1, 1, 1, 0, 0, 0, 0]
    kv.check_integrity()
    assert kv.take_copies() == (TailCopy(2, 3, 2),)
    assert _ref_counts(kv) == [1, 1, 0, 1, 0, 0, 0, 0]
    assert kv.match_prefix("c", [*TEN, 20, 21]).tail == TailMatch(2, 3)


def test_a_tail_that_another_copy_waits_for_is_copied_too() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, [*TEN, 20])
    kv.start("a", [*TEN, 1])
    assert kv.start("b", [*TEN, 20, 21]) == 11
    assert _ref_counts(kv) == [2, 2, 2, 1, 1, 0, 0, 0]
    assert kv.take_copies() == (TailCopy(2, 3, 2), TailCopy(2, 4, 3))
    kv.check_integrity()


def test_a_running_requests_last_block_is_not_shared() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", TEN)
    assert kv.match_prefix("b", [*TEN, 1]) == PrefixMatch((0, 1), None, 8, None)


def test_a_wholly_cached_prompt_leaves_its_last_token_in_a_block_of_its_own() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, TEN[:8])
    assert kv.start("b", TEN[:8]) == 7
    assert kv.block_ids("b") == (0, 2)
    assert kv.take_copies() == (TailCopy(1, 2, 3),)
    kv.extend("b", 8)
    kv.commit("b", TEN[:8], 8)
    assert kv.block_ids("b") == (0, 1)  # equal to what is published, so that is used
    assert _ref_counts(kv) == [1, 1, 0, 0, 0, 0, 0, 0]
    kv.check_integrity()


def test_a_one_token_prompt_has_nothing_to_reuse() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, [10])
    assert kv.start("b", [10]) == 0


def test_equal_blocks_computed_side_by_side_become_one() -> None:
    kv = make_kv_manager()
    for request_id in ("a", "b"):
        kv.start(request_id, TEN)
        kv.extend(request_id, 10)
    assert (kv.block_ids("a"), kv.block_ids("b")) == ((0, 1, 2), (3, 4, 5))
    kv.commit("a", TEN, 10)
    kv.commit("b", TEN, 10)
    assert kv.block_ids("b") == (0, 1, 5)
    assert _ref_counts(kv) == [2, 2, 1, 0, 0, 1, 0, 0]
    assert kv.usage().num_free == 4
    kv.check_integrity()


def test_generated_tokens_are_published_like_the_prompt() -> None:
    kv = make_kv_manager()
    token_ids = TEN[:7]
    compute_tokens(kv, "a", token_ids)
    for num_computed in range(8, 13):
        token_ids = [*token_ids, num_computed]
        kv.extend("a", num_computed)
        kv.commit("a", token_ids, num_computed)
    assert kv.match_prefix("b", [*token_ids, 1]).block_ids == (0, 1, 2)


def test_a_freed_conversation_stays_and_is_evicted_tail_first() -> None:
    kv = make_kv_manager(num_blocks=4)
    cache_tokens(kv, TEN)
    assert _cached_in_order(kv) == [2, 1, 0]
    assert kv.start("b", [1] * 12) == 0
    kv.extend("b", 12)
    assert kv.block_ids("b") == (3, 2, 1)
    assert kv.usage() == PoolUsage(4, 3, 1, 0, 2)
    assert kv.match_prefix("c", TEN).block_ids == (0,)
    kv.check_integrity()


def test_the_conversation_used_longest_ago_goes_first() -> None:
    kv = make_kv_manager(num_blocks=9)
    assert cache_tokens(kv, [1] * 9) == (0, 1, 2)
    assert cache_tokens(kv, [2] * 9) == (3, 4, 5)
    assert cache_tokens(kv, [3] * 9) == (6, 7, 8)
    assert cache_tokens(kv, [*[1] * 9, 5]) == (0, 1, 2)
    assert _cached_in_order(kv) == [5, 4, 3, 8, 7, 6, 2, 1, 0]


def test_a_shared_head_outlives_both_tails() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, [*TEN[:8], 1, 1])
    cache_tokens(kv, [*TEN[:8], 2, 2])
    assert _cached_in_order(kv) == [2, 3, 1, 0]


def test_extend_without_enough_blocks_changes_nothing() -> None:
    kv = make_kv_manager(num_blocks=4)
    cache_tokens(kv, [1] * 8)
    compute_tokens(kv, "b", [2] * 8)
    before = _state(kv)
    assert not kv.extend("b", 17)
    assert _state(kv) == before
    assert kv.extend("b", 16)
    assert kv.block_ids("b") == (2, 3, 1, 0)


def test_start_without_any_room_changes_nothing() -> None:
    kv = make_kv_manager(num_blocks=3)
    compute_tokens(kv, "a", TEN)
    before = _state(kv)
    assert kv.start("b", [*TEN[:8], 1]) is None
    assert _state(kv) == before
    with pytest.raises(KeyError):
        kv.block_ids("b")
    kv.forget("b")
    kv.check_integrity()


def test_matched_blocks_are_not_evicted_for_the_request_that_matched_them() -> None:
    kv = make_kv_manager(num_blocks=3)
    cache_tokens(kv, TEN[:8])
    assert kv.start("b", [*TEN[:8], 1]) == 8
    assert not kv.extend("b", 13)
    assert kv.extend("b", 12)
    assert kv.block_ids("b") == (0, 1, 2)
    assert kv.usage().num_evicted_total == 0


def test_a_copy_that_would_take_the_last_block_is_computed_again_instead() -> None:
    kv = make_kv_manager(num_blocks=2)
    cache_tokens(kv, TEN[:8])
    assert kv.match_prefix("b", TEN[:8]).num_tokens == 7
    assert kv.start("b", TEN[:8]) == 4
    assert kv.extend("b", 8)
    assert kv.block_ids("b") == (0, 1)
    assert kv.usage().num_evicted_total == 1
    kv.check_integrity()


def test_freed_before_its_copy_ran_a_target_is_not_published() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, [*TEN, 20])
    assert kv.start("b", [*TEN, 1]) == 10
    kv.free("b", [*TEN, 1], 10)
    assert kv.take_copies() == ()
    assert _cached_in_order(kv) == [2, 1, 0]
    assert kv.usage().num_free == 5
    kv.check_integrity()


def test_after_a_failed_step_a_target_is_not_published() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", [10, 11, 12, 13])
    assert kv.start("b", [10, 11, 1]) == 2
    kv.take_copies()
    kv.discard("a")  # the source is gone, and whether the copy ran is not known
    kv.free("b", [10, 11, 1], 2)
    assert kv.match_prefix("c", [10, 11, 1]).num_tokens == 0
    assert kv.usage().num_free == 8


def test_a_preempted_request_finds_its_blocks_again_with_its_output() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", TEN)
    kv.free("a", TEN, 10)
    assert kv.match_prefix("a", [*TEN, 20]).num_tokens == 10
    assert kv.start("a", [*TEN, 20, 21]) == 10
    assert kv.block_ids("a") == (0, 1, 2)
    kv.check_integrity()


def test_an_equal_tail_is_not_published_twice_but_used_again() -> None:
    kv = make_kv_manager()
    for request_id in ("a", "b"):
        kv.start(request_id, TEN)
        kv.extend(request_id, 10)
        kv.commit(request_id, TEN, 10)
    kv.free("a", TEN, 10)
    assert _cached_in_order(kv) == [2]
    kv.free("b", TEN, 10)
    assert _cached_in_order(kv) == [2, 1, 0]
    assert kv.usage().num_free == 5
    kv.check_integrity()


def test_salts_share_nothing() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, TEN, namespace="anna")
    assert kv.match_prefix("b", TEN, namespace="ben").num_tokens == 0
    assert kv.match_prefix("b", TEN).num_tokens == 0
    assert kv.match_prefix("b", TEN, namespace="anna").num_tokens == 9
    assert kv.start("c", TEN, namespace="ben") == 0
    kv.check_integrity()


def test_upcoming_hashes_end_with_what_the_step_completes() -> None:
    kv = make_kv_manager()
    hashes = PrefixHashes("model", 4, "anna")
    kv.start("a", TEN, "anna")
    assert kv.upcoming_hashes("a", TEN, "anna", 9) == (hashes.at(TEN, 0), hashes.at(TEN, 1))
    kv.extend("a", 10)
    kv.commit("a", TEN, 5)
    assert kv.upcoming_hashes("a", TEN, "anna", 8) == (hashes.at(TEN, 1),)
    assert kv.upcoming_hashes("a", TEN, "anna", 7) == ()
    assert kv.upcoming_hashes("b", TEN, "anna", 4) == (hashes.at(TEN, 0),)


def test_an_equal_request_waits_for_just_the_hash_that_is_upcoming() -> None:
    kv = make_kv_manager()
    kv.start("a", TEN)
    upcoming = kv.upcoming_hashes("a", TEN, "", 10)
    assert kv.match_prefix("b", TEN).next_hash == upcoming[0]


def test_a_request_id_may_come_back_with_other_tokens() -> None:
    kv = make_kv_manager()
    kv.match_prefix("a", TEN)
    kv.forget("a")
    compute_tokens(kv, "a", [1] * 9)
    kv.free("a", [1] * 9, 9)
    compute_tokens(kv, "a", [2] * 9)
    kv.discard("a")
    compute_tokens(kv, "a", TEN)
    kv.check_integrity()


def test_fits_counts_whole_blocks() -> None:
    kv = make_kv_manager(num_blocks=2)
    assert kv.fits(8)
    assert not kv.fits(9)


def test_without_caching_every_block_is_free_again() -> None:
    kv = make_kv_manager(enable_prefix_caching=False)
    compute_tokens(kv, "a", TEN)
    assert kv.match_prefix("b", TEN) == PrefixMatch((), None, 0, None)
    assert kv.upcoming_hashes("a", TEN, "", 10) == ()
    assert kv.start("b", TEN) == 0
    kv.free("a", TEN, 10)
    kv.discard("b")
    assert kv.usage() == PoolUsage(8, 0, 0, 8, 0)
    kv.check_integrity()


def test_integrity_finds_a_reference_too_many() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", TEN)
    kv._pool.blocks[0].ref_count += 1
    with pytest.raises(AssertionError, match="block 0 has 2 references instead of 1"):
        kv.check_integrity()
