"""What a manager with tiers notes to be moved, exactly. Blocks have four tokens."""

from __future__ import annotations

from engine.kv.block_moves import BlockMoves, Fill, Load, MoveOutcome, Save
from engine.kv.disk_tier import MAX_PENDING_BYTES
from engine.kv.hashing import PrefixHashes
from engine.kv.manager import KVCacheManager
from engine.kv.tiers import Restored, Tiers
from tests.factories import cache_tokens, compute_tokens, make_kv_manager, run_moves
from tests.fake_disk import FILE_BYTES, FakeDisk, make_disk_tier

TEN = list(range(10, 20))
OTHER = [1] * 12


def manager(
    num_blocks: int = 4, num_slots: int = 8, disk: FakeDisk | None = None
) -> KVCacheManager:
    tier = make_disk_tier(disk) if disk else None
    return make_kv_manager(num_blocks=num_blocks, tiers=Tiers(num_slots, tier, num_slots))


def host_hashes(kv: KVCacheManager) -> list[bytes]:
    """The most recently used first."""
    return [entry.key.block_hash for entry in kv.tiers._host.entries()]


def evict_ten(kv: KVCacheManager) -> None:
    """TEN's two whole blocks are in slots 0 (the second) and 1 (the first)."""
    cache_tokens(kv, TEN)
    cache_tokens(kv, [1] * 16)


def test_evicted_whole_blocks_are_saved_children_first_and_tails_are_not() -> None:
    kv = manager()
    assert cache_tokens(kv, TEN) == (0, 1, 2)
    kv.start("b", [1] * 16)
    kv.extend("b", 16)
    assert kv.tiers.take_moves() == BlockMoves(saves=(Save(1, 0), Save(0, 1)))
    kv.tiers.moved(BlockMoves(saves=(Save(1, 0), Save(0, 1))), MoveOutcome())
    hashes = PrefixHashes("model", 4, "")
    assert host_hashes(kv) == [hashes.at(TEN, 0), hashes.at(TEN, 1)]
    kv.check_integrity()


def test_a_match_goes_on_below_the_device() -> None:
    kv = manager()
    evict_ten(kv)
    match = kv.match_prefix("b", [*TEN, 1, 2])
    assert (match.block_ids, match.tail, match.num_tokens, match.num_restorable) == ((), None, 8, 2)
    assert match.next_hash == PrefixHashes("model", 4, "").at(TEN, 0)  # not on the device


def test_a_restored_prefix_is_the_requests_own_until_its_step_has_run() -> None:
    kv = manager()
    evict_ten(kv)
    assert kv.start("b", [*TEN, 1, 2]) == 8
    assert kv.restored("b") == Restored(2, 0)
    block_ids = kv.block_ids("b")
    moves = run_moves(kv)
    assert moves.loads == (Load(1, block_ids[0]), Load(0, block_ids[1]))
    assert kv.match_prefix("c", [*TEN, 1, 2]).block_ids == ()
    kv.extend("b", 12)
    run_moves(kv)
    kv.commit("b", [*TEN, 1, 2], 12)
    assert kv.match_prefix("c", [*TEN, 1, 2, 3]).block_ids == kv.block_ids("b")
    kv.check_integrity()


def test_the_last_token_is_computed_even_where_its_block_is_there() -> None:
    kv = manager()
    evict_ten(kv)
    assert kv.match_prefix("b", TEN[:8]).num_tokens == 4
    kv.forget("b")
    assert kv.start("c", TEN[:8]) == 4


def test_room_for_one_token_is_left() -> None:
    kv = manager(num_blocks=4)
    evict_ten(kv)
    compute_tokens(kv, "busy", OTHER[:8])  # two of the four blocks
    assert kv.start("b", [*TEN, 1, 2]) == 4
    assert kv.extend("b", 8)
    kv.check_integrity()


def test_freed_before_its_step_nothing_of_it_is_published() -> None:
    kv = manager()
    evict_ten(kv)
    kv.start("b", [*TEN, 1, 2])
    kv.free("b", [*TEN, 1, 2], 8)
    assert run_moves(kv).loads == ()
    assert kv.usage().num_in_use == 0
    assert kv.match_prefix("c", [*TEN, 1, 2]).block_ids == ()
    kv.check_integrity()


def test_a_failed_load_is_not_found_again() -> None:
    kv = manager()
    evict_ten(kv)
    kv.start("b", [*TEN, 1, 2])
    moves = kv.tiers.take_moves()
    kv.tiers.moved(moves, MoveOutcome(unfilled_block_ids=frozenset(kv.block_ids("b"))))
    kv.free("b", [*TEN, 1, 2], 8)
    assert kv.match_prefix("c", [*TEN, 1, 2]).num_tokens == 0
    kv.check_integrity()


def test_a_failed_save_is_not_found() -> None:
    kv = manager()
    cache_tokens(kv, TEN)
    kv.start("b", [1] * 16)
    kv.extend("b", 16)
    kv.tiers.moved(kv.tiers.take_moves(), MoveOutcome(failed_slots=frozenset({1})))
    assert kv.match_prefix("c", TEN).num_tokens == 0  # its first block is missing
    assert kv.tiers.usage().num_host_blocks == 1
    kv.check_integrity()


def test_a_block_that_is_in_a_slot_is_not_saved_twice() -> None:
    kv = manager()
    evict_ten(kv)
    cache_tokens(kv, [*TEN, 1, 2])
    kv.start("b", [7] * 16)
    kv.extend("b", 16)
    # Of four evicted blocks two are new there: the third of this text, the first of [1] * 16.
    assert len(kv.tiers.take_moves().saves) == 2


def test_where_all_slots_wait_a_block_is_lost_and_nothing_else() -> None:
    kv = manager(num_slots=1)
    cache_tokens(kv, TEN)
    kv.start("b", [1] * 16)
    kv.extend("b", 16)
    assert kv.tiers.take_moves().saves == (Save(1, 0),)


def test_what_leaves_a_slot_goes_to_disk_and_comes_back_through_one() -> None:
    disk = FakeDisk()
    kv = manager(num_slots=4, disk=disk)
    evict_ten(kv)
    for token in (2, 3):
        cache_tokens(kv, [token] * 16)
    disk.work()
    kv.tiers.collect()
    assert kv.match_prefix("b", TEN).num_tokens == 0
    kv.fetch("b", [*TEN, 1, 2], "", now_s=0.0)
    assert kv.tiers.is_fetching("b", 0.1)
    disk.work()
    kv.tiers.collect()
    assert not kv.tiers.is_fetching("b", 0.2)
    assert kv.start("b", [*TEN, 1, 2]) == 8
    assert kv.restored("b") == Restored(0, 2)
    moves = run_moves(kv)
    assert [type(fill) for fill in moves.fills] == [Fill, Fill]
    assert [load.slot for load in moves.loads] == [fill.slot for fill in moves.fills]
    kv.check_integrity()


def test_nobody_waits_for_what_is_not_there_or_longer_than_the_limit() -> None:
    disk = FakeDisk()
    kv = manager(num_slots=4, disk=disk)
    evict_ten(kv)
    for token in (2, 3):
        cache_tokens(kv, [token] * 16)
    disk.work()
    kv.tiers.collect()
    kv.fetch("stranger", [8] * 12, "", 0.0)
    assert not kv.tiers.is_fetching("stranger", 0.0)
    kv.fetch("b", [*TEN, 1], "", 0.0)
    assert kv.tiers.is_fetching("b", 2.9)
    assert not kv.tiers.is_fetching("b", 3.0)


def test_forgetting_takes_leaves_and_parents_from_every_tier_but_what_is_shared() -> None:
    disk = FakeDisk()
    kv = manager(num_slots=4, disk=disk)
    cache_tokens(kv, TEN, conversation="anna")
    cache_tokens(kv, [*TEN[:4], *[5] * 8], conversation="ben")
    for token in (2, 3):
        cache_tokens(kv, [token] * 16)
    disk.work()
    kv.tiers.collect()
    names = {name for name, (key, _) in disk.files.items() if key.token_ids == tuple(TEN[4:8])}
    assert len(names) == 1
    kv.forget_conversations(["anna", ""])
    disk.work()
    assert not names & disk.files.keys()
    left = {key.token_ids for key, _ in disk.files.values()}
    assert {tuple(TEN[:4]), (5, 5, 5, 5)} <= left | {
        entry.key.token_ids for entry in kv.tiers._host.entries()
    }
    kv.check_integrity()


def test_what_is_being_read_when_it_is_forgotten_is_not_used() -> None:
    disk = FakeDisk()
    kv = manager(num_slots=4, disk=disk)
    cache_tokens(kv, TEN, conversation="anna")
    for token in (1, 2, 3):
        cache_tokens(kv, [token] * 16)
    disk.work()
    kv.tiers.collect()
    kv.fetch("b", [*TEN, 1, 2], "", 0.0)
    disk.work()  # it has been read, and nobody has looked yet
    kv.forget_conversations(["anna"])
    kv.tiers.collect()
    assert kv.match_prefix("b", [*TEN, 1, 2]).num_tokens == 0
    kv.check_integrity()


def test_what_is_noted_to_be_spilled_is_forgotten_too() -> None:
    disk = FakeDisk()
    kv = manager(num_slots=2, disk=disk)
    cache_tokens(kv, [7] * 8, conversation="anna")
    cache_tokens(kv, [1] * 16)  # anna's two blocks are in the slots
    kv.start("b", [2] * 16)
    kv.extend("b", 16)  # and must leave them now
    kv.forget_conversations(["anna"])
    assert run_moves(kv).spills == ()
    disk.work()
    assert disk.files == {}
    kv.check_integrity()


def test_a_block_in_use_is_left() -> None:
    kv = manager(num_blocks=8)
    compute_tokens(kv, "a", TEN, conversation="anna")
    kv.forget_conversations(["anna"])
    assert kv.match_prefix("b", TEN).num_tokens == 8
    kv.free("a", TEN, 10)
    kv.forget_conversations(["anna"])
    assert kv.match_prefix("b", TEN).num_tokens == 0
    assert kv.usage().num_free == 8
    kv.check_integrity()


def test_the_warmest_come_first_and_parents_before_children() -> None:
    kv = manager(num_blocks=6)
    cache_tokens(kv, TEN)
    cache_tokens(kv, OTHER)
    cache_tokens(kv, [9] * 8)
    warm = list(kv.warm_blocks())
    assert [block.key.token_ids[0] for block in warm] == [9, 9, 1, 1, 1, 10, 14]
    on_device = [block.block_id is not None for block in warm]
    assert on_device == [True] * 6 + [False]


def test_without_slots_nothing_is_kept() -> None:
    kv = manager(num_slots=0)
    cache_tokens(kv, TEN)
    kv.start("b", [1] * 16)
    kv.extend("b", 16)
    assert not kv.tiers.take_moves()
    kv.check_integrity()


def test_an_empty_disk_cache_shows_its_limit() -> None:
    assert manager(disk=FakeDisk()).tiers.usage().max_disk_bytes == 100_000


def test_what_is_evicted_while_it_is_read_has_no_owner_any_more_and_is_not_used() -> None:
    """It would count as everybody's, and no deletion would ever find it."""
    disk = FakeDisk()
    tier = make_disk_tier(disk, num_blocks=6)
    kv = make_kv_manager(num_blocks=4, tiers=Tiers(4, tier, 4))
    cache_tokens(kv, TEN, conversation="anna")
    for token in (1, 2, 3):
        cache_tokens(kv, [token] * 16)
    disk.work()
    kv.tiers.collect()
    kv.fetch("b", [*TEN, 1, 2], "", 0.0)
    disk.work()  # it has been read, and nobody has looked yet
    for index in range(2):
        tier.drop(PrefixHashes("model", 4, "").at(TEN, index))
    kv.forget_conversations(["anna"])
    kv.tiers.collect()
    assert not kv.tiers.is_fetching("b", 0.0)
    assert kv.match_prefix("b", [*TEN, 1, 2]).num_tokens == 0
    kv.check_integrity()


def test_no_more_is_spilled_in_a_step_than_may_wait_to_be_written() -> None:
    disk = FakeDisk()
    kv = manager(num_blocks=8, num_slots=8, disk=disk)
    for token in (1, 2):
        cache_tokens(kv, [token] * 32)
    disk.pending_bytes = MAX_PENDING_BYTES - 3 * FILE_BYTES
    kv.start("b", [3] * 32)
    kv.extend("b", 32)
    moves = kv.tiers.take_moves()
    assert (len(moves.saves), len(moves.spills)) == (8, 3)


def test_what_follows_a_distrusted_block_through_others_goes_from_the_tiers_too() -> None:
    kv = manager(num_blocks=6)
    compute_tokens(kv, "bad", TEN[:4])
    long = [*TEN[:8], *OTHER]
    cache_tokens(kv, long)  # what follows the bad block, on the device ...
    kv.start("b", [2] * 12)
    kv.extend("b", 12)
    run_moves(kv)
    assert kv.match_prefix("probe", long).num_tokens == 16  # ... and its end only in host memory
    kv.discard("b")
    kv.discard("bad")
    assert len(kv.tiers._host) == 0
    kv.check_integrity()
