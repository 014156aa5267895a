"""What free and discard leave published. Blocks have four tokens."""

from __future__ import annotations

from engine.kv.manager import KVCacheManager, PrefixMatch, TailMatch
from tests.factories import cache_tokens, compute_tokens, make_kv_manager

TWELVE = list(range(10, 22))


def _published(kv: KVCacheManager) -> list[tuple[int, ...]]:
    """Token ids by block id; () where nothing is published."""
    return [block.token_ids for block in kv._pool.blocks]


def test_free_publishes_whole_blocks_and_the_tail() -> None:
    kv = make_kv_manager(num_blocks=4)
    kv.start("a", TWELVE)
    kv.extend("a", 12)
    kv.free("a", TWELVE, 10)  # no commit came after the last step
    assert _published(kv) == [(10, 11, 12, 13), (14, 15, 16, 17), (18, 19), ()]
    kv.check_integrity()


def test_free_with_nothing_computed_publishes_nothing() -> None:
    kv = make_kv_manager(num_blocks=4)
    kv.start("a", TWELVE)
    kv.extend("a", 12)
    kv.free("a", TWELVE, 0)
    assert kv.usage().num_free == 4


def test_a_cut_inside_a_published_block_keeps_its_head_as_a_tail() -> None:
    kv = make_kv_manager(num_blocks=4)
    compute_tokens(kv, "a", TWELVE)
    kv.free("a", TWELVE, 6)
    assert _published(kv) == [(10, 11, 12, 13), (14, 15), (), ()]
    assert kv.match_prefix("b", TWELVE) == PrefixMatch(
        (0,), TailMatch(1, 2), 6, kv.upcoming_hashes("b", TWELVE, "", 8)[1]
    )
    kv.check_integrity()


def test_a_cut_at_a_block_boundary_leaves_no_tail() -> None:
    kv = make_kv_manager(num_blocks=4)
    compute_tokens(kv, "a", TWELVE)
    kv.free("a", TWELVE, 4)
    assert _published(kv) == [(10, 11, 12, 13), (), (), ()]
    kv.check_integrity()


def test_a_cut_spares_what_others_hold() -> None:
    kv = make_kv_manager(num_blocks=4)
    compute_tokens(kv, "a", TWELVE)
    kv.start("b", [*TWELVE[:8], 1])
    kv.free("a", TWELVE, 6)
    assert _published(kv) == [(10, 11, 12, 13), (14, 15, 16, 17), (), ()]
    kv.check_integrity()


def test_a_cut_spares_what_others_have_extended() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", TWELVE)
    cache_tokens(kv, [*TWELVE[:8], 1])
    kv.free("a", TWELVE, 6)
    assert _published(kv)[:4] == [(10, 11, 12, 13), (14, 15, 16, 17), (), (1,)]
    kv.check_integrity()


def test_a_cut_spares_what_another_request_published() -> None:
    kv = make_kv_manager(num_blocks=4)
    cache_tokens(kv, TWELVE)
    compute_tokens(kv, "b", [*TWELVE, 1])
    kv.free("b", [*TWELVE, 1], 6)
    assert _published(kv)[1] == (14, 15, 16, 17)
    kv.check_integrity()


def test_discard_forgets_what_the_request_alone_published() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, TWELVE[:4])
    compute_tokens(kv, "a", TWELVE)
    kv.discard("a")
    assert _published(kv)[:3] == [(10, 11, 12, 13), (), ()]
    assert kv.usage().num_free == 7
    kv.check_integrity()


def test_discard_leaves_shared_blocks_to_the_others() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", TWELVE)
    kv.start("b", [*TWELVE[:8], 1])
    kv.discard("a")
    assert [block.ref_count for block in kv._pool.blocks[:4]] == [1, 1, 0, 0]
    assert _published(kv)[:3] == [(10, 11, 12, 13), (14, 15, 16, 17), ()]
    kv.check_integrity()


def test_discard_takes_what_was_computed_from_it() -> None:
    kv = make_kv_manager()
    compute_tokens(kv, "a", TWELVE[:8])
    cache_tokens(kv, TWELVE)
    cache_tokens(kv, [*TWELVE[:8], 1])
    assert kv.usage().num_cached == 2
    kv.discard("a")
    assert kv.usage().num_free == 8
    kv.check_integrity()


def test_discard_of_a_tail_taken_over_forgets_it() -> None:
    kv = make_kv_manager()
    cache_tokens(kv, TWELVE[:6])
    kv.start("a", TWELVE)
    kv.discard("a")
    assert _published(kv)[:2] == [(10, 11, 12, 13), ()]
    kv.check_integrity()
