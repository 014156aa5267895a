"""What is on disk, what goes first, and what a failure changes. Files are of 100 bytes."""

from __future__ import annotations

from engine.kv.disk_tier import (
    MAX_PENDING_BYTES,
    BlockFile,
    DiskTier,
    ForeignFile,
    OwnFile,
    ReadDone,
)
from engine.kv.hashing import PrefixHashes
from engine.kv.owners import SHARED, owner_of
from tests.fake_disk import FILE_BYTES, FakeDisk, make_disk_tier

TOKENS = list(range(40))
HASHES = PrefixHashes("model", 4, "")
KEYS = [HASHES.key(TOKENS, index) for index in range(8)]


def put(disk: DiskTier, *indices: int) -> None:
    for index in indices:
        assert disk.put(KEYS[index], SHARED, b"%d" % index)
    disk.check_integrity()


def there(disk: DiskTier) -> list[int]:
    return [index for index, key in enumerate(KEYS) if key.block_hash in disk]


def own_file(index: int) -> OwnFile:
    key = KEYS[index]
    return OwnFile(key.block_hash, key.parent_hash, SHARED, BlockFile(f"f{index}", FILE_BYTES))


def test_a_block_can_be_read_once_it_is_written() -> None:
    store = FakeDisk()
    disk = make_disk_tier(store)
    put(disk, 0)
    assert not disk.can_read(KEYS[0].block_hash)
    store.work()
    assert disk.collect() == []
    assert disk.can_read(KEYS[0].block_hash)
    disk.read([KEYS[0]])
    store.work()
    assert disk.collect() == [ReadDone(KEYS[0], b"0")]


def test_the_least_recently_used_goes_and_its_file_with_it() -> None:
    store = FakeDisk()
    disk = make_disk_tier(store, num_blocks=3)
    put(disk, 0, 1, 2)
    disk.touch(KEYS[0].block_hash, SHARED)
    put(disk, 3)
    assert there(disk) == [0, 2, 3]
    store.work()
    assert len(store.files) == 3
    assert disk.num_bytes == 300


def test_after_reading_a_chain_its_end_goes_first() -> None:
    store = FakeDisk()
    disk = make_disk_tier(store, num_blocks=3)
    put(disk, 0, 1, 2)
    store.work()
    disk.collect()
    disk.read(KEYS[:3])
    put(disk, 5)
    assert there(disk) == [0, 1, 5]


def test_other_models_files_count_and_go_first() -> None:
    store = FakeDisk()
    foreign = [ForeignFile(SHARED, BlockFile(name, 150)) for name in ("old", "new")]
    disk = DiskTier(store, 500, FILE_BYTES, found=[own_file(0), own_file(1)], foreign=foreign)
    assert disk.num_bytes == 500
    put(disk, 2)
    assert (there(disk), disk.num_bytes) == ([0, 1, 2], 450)
    put(disk, 3, 4)
    assert (there(disk), disk.num_bytes) == ([0, 1, 2, 3, 4], 500)
    put(disk, 5)
    assert there(disk) == [1, 2, 3, 4, 5]


def test_more_than_fits_is_removed_at_the_start() -> None:
    disk = DiskTier(FakeDisk(), 200, FILE_BYTES, found=[own_file(index) for index in range(4)])
    assert there(disk) == [2, 3]
    disk.check_integrity()


def test_a_block_that_could_not_be_read_is_removed() -> None:
    store = FakeDisk()
    disk = make_disk_tier(store)
    put(disk, 0)
    store.work()
    disk.collect()
    store.files.clear()
    disk.read([KEYS[0]])
    store.work()
    assert disk.collect() == [ReadDone(KEYS[0], None)]
    assert there(disk) == []


def test_after_a_failed_write_nothing_is_wanted_any_more() -> None:
    store = FakeDisk()
    disk = make_disk_tier(store)
    put(disk, 0)
    store.work()
    disk.collect()
    store.is_full = True
    put(disk, 1)
    store.work()
    disk.collect()
    assert there(disk) == [0]
    assert not disk.put(KEYS[2], SHARED, b"2")


def test_a_full_queue_drops_blocks() -> None:
    store = FakeDisk()
    store.pending_bytes = MAX_PENDING_BYTES
    disk = make_disk_tier(store)
    assert not disk.put(KEYS[0], SHARED, b"0")
    assert there(disk) == []


def test_a_forgotten_write_does_not_come_back() -> None:
    store = FakeDisk()
    disk = make_disk_tier(store)
    assert disk.put(KEYS[0], owner_of("anna"), b"0")
    assert disk.owned_by(frozenset({owner_of("anna")})) == [KEYS[0].block_hash]
    disk.drop(KEYS[0].block_hash)  # the write is still waiting
    store.work()
    disk.collect()
    assert (store.files, there(disk), disk.num_bytes) == ({}, [], 0)


def test_rank_becomes_age_so_that_parents_outlive_their_children() -> None:
    store = FakeDisk()
    disk = make_disk_tier(store)
    for rank in range(3):
        disk.put(KEYS[rank], SHARED, b"x", rank)
    store.work()
    ages_s = [store.ages_s[store.file_of(key, SHARED).name] for key in KEYS[:3]]
    assert ages_s == sorted(ages_s)
    assert ages_s[0] < ages_s[2]
