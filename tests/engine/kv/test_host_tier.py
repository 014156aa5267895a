"""Exact slots, order of eviction and pins."""

from __future__ import annotations

import pytest

from engine.kv.hashing import BlockKey, PrefixHashes
from engine.kv.host_tier import HostTier
from engine.kv.owners import SHARED, joined, owner_of

TOKENS = list(range(40))
HASHES = PrefixHashes("model", 4, "")
KEYS = [HASHES.key(TOKENS, index) for index in range(8)]


def taken(host: HostTier, key: BlockKey, owner: str = SHARED) -> int:
    """A slot whose content has come."""
    taken = host.take(key, owner)
    assert taken is not None
    host.unpin(taken.entry)
    host.check_integrity()
    return taken.entry.slot


def test_slots_are_given_in_order_and_then_the_least_recently_used_goes() -> None:
    host = HostTier(3)
    assert [taken(host, key) for key in KEYS[:3]] == [0, 1, 2]
    host.touch(KEYS[0].block_hash, SHARED)
    fourth = host.take(KEYS[3], SHARED)
    assert fourth is not None
    assert fourth.evicted is not None
    assert (fourth.entry.slot, fourth.evicted.key) == (1, KEYS[1])
    assert host.find(KEYS[1]) is None
    assert [entry.key for entry in host.entries()] == [KEYS[3], KEYS[0], KEYS[2]]
    host.check_integrity()


def test_a_pinned_entry_is_passed_over() -> None:
    host = HostTier(2)
    for key in KEYS[:2]:
        taken(host, key)
    oldest = host.find(KEYS[0])
    assert oldest is not None
    host.pin(oldest)
    third = host.take(KEYS[2], SHARED)
    assert third is not None
    assert third.evicted is not None
    assert third.evicted.key == KEYS[1]
    assert host.take(KEYS[3], SHARED) is None  # both are pinned now
    host.unpin(oldest)
    assert taken(host, KEYS[3]) == 0


def test_a_dropped_entry_gives_its_slot_back_when_nobody_waits_for_it() -> None:
    host = HostTier(1)
    first = host.take(KEYS[0], SHARED)
    assert first is not None
    host.drop(KEYS[0].block_hash)
    assert host.find(KEYS[0]) is None
    assert host.take(KEYS[1], SHARED) is None
    host.check_integrity()
    host.unpin(first.entry)
    assert taken(host, KEYS[1]) == 0


def test_the_same_hash_with_other_tokens_or_another_parent_is_a_miss() -> None:
    host = HostTier(2)
    taken(host, KEYS[0])
    assert host.find(KEYS[0]._replace(token_ids=(9, 9, 9, 9))) is None
    assert host.find(KEYS[0]._replace(parent_hash=KEYS[1].block_hash)) is None
    assert host.find(KEYS[0]) is not None


def test_children_are_those_that_are_there() -> None:
    host = HostTier(4)
    for key in KEYS[:3]:
        taken(host, key)
    assert host.children(KEYS[0].block_hash) == (KEYS[1].block_hash,)
    host.drop(KEYS[1].block_hash)
    assert host.children(KEYS[0].block_hash) == ()
    host.check_integrity()


def test_a_second_user_makes_a_block_everybodys() -> None:
    host = HostTier(2)
    anna, ben = owner_of("anna"), owner_of("ben")
    for key in KEYS[:2]:
        taken(host, key, anna)
    host.touch(KEYS[0].block_hash, anna)
    host.touch(KEYS[1].block_hash, ben)
    assert host.owned_by(frozenset({anna})) == [KEYS[0].block_hash]
    assert host.owned_by(frozenset({ben})) == []


def test_owners() -> None:
    assert owner_of("") == SHARED
    assert owner_of("anna") == owner_of("anna") != owner_of("ben")
    assert joined(None, "a") == joined("a", "a") == "a"
    assert joined("a", "b") == joined(SHARED, "b") == joined("b", SHARED) == SHARED


def test_integrity_finds_a_lost_slot() -> None:
    host = HostTier(2)
    host._free.pop()
    with pytest.raises(AssertionError, match="slots are lost"):
        host.check_integrity()
