"""Thousands of random operations on one pool, with a storage that knows what each slot holds.

Before a step computes on cached tokens, every slot it would read must hold the KV of the right
token after the right prefix: a hit equals a miss.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from engine.kv import hashing, prefix_cache
from engine.kv.block_pool import Block
from engine.kv.hashing import BlockHash, hash_block
from engine.kv.manager import KVCacheManager
from engine.kv.prefix_cache import PrefixRoot
from engine.kv.tail_copies import TailCopy
from engine.kv.tiers import Tiers
from tests.factories import make_kv_manager
from tests.fake_disk import FakeDisk, make_disk_tier
from tests.fakes import FakeKVStorage

_SALTS = ("", "", "anna", "ben")
_VOCABULARY = (1, 2)  # so few that equal and nearly equal prefixes are the rule
_LONGEST = 40
_CONVERSATIONS = ("", "", "c1", "c2", "c3")


@dataclass
class _Run:
    request_id: str
    namespace: str
    token_ids: list[int]
    num_computed: int


class _Engine:
    """The least of a scheduler and a runner around the manager, driven by dice."""

    def __init__(
        self, kv: KVCacheManager, rng: random.Random, disk: FakeDisk | None = None
    ) -> None:
        self.kv = kv
        self.rng = rng
        self.disk = disk
        self.now_s = 0.0
        self.num_restored = 0
        self.forgotten: set[str] = set()
        self.storage = FakeKVStorage(kv.block_size)
        self.runs: list[_Run] = []
        self.texts: list[list[int]] = [[]]  # token lists seen, to continue from
        self.num_started = 0
        self.num_cached_tokens = 0
        self.num_copies = 0

    def operate(self) -> None:
        operation = self.rng.choices(
            (self.start, self.step, self.finish, self.cut, self.preempt, self.discard, self.forget),
            (30, 45, 12, 6, 4, 4, 2),
        )[0]
        self.now_s += 0.1
        if operation in (self.start, self.forget) or self.runs:
            operation()
        if self.disk is not None:
            self.disk.work(self.rng.randint(0, 8))

    def start(self) -> None:
        self.num_started += 1
        request_id, namespace = f"r{self.num_started}", self.rng.choice(_SALTS)
        token_ids = self._prompt()
        self.kv.fetch(request_id, token_ids, namespace, self.now_s)
        if self.disk is not None and self.rng.random() < 0.9:
            self.disk.work()
        if self.rng.random() < 0.9:
            self.kv.tiers.collect()
        match = self.kv.match_prefix(request_id, token_ids, namespace)
        on_device = _longest_published(self.kv, namespace, token_ids)
        whole = on_device // self.kv.block_size
        restorable = match.num_restorable * self.kv.block_size
        expected = (whole * self.kv.block_size + restorable) if restorable else on_device
        assert (match.num_tokens, len(match.block_ids)) == (expected, whole)
        conversation = self.rng.choice(_CONVERSATIONS)
        num_cached = self.kv.start(request_id, token_ids, namespace, conversation)
        if num_cached is None:
            return self.kv.forget(request_id)
        if restorable:
            assert whole * self.kv.block_size <= num_cached <= expected
        else:
            assert num_cached in (expected, whole * self.kv.block_size)
        self.num_cached_tokens += num_cached
        self.num_restored += sum(self.kv.restored(request_id))
        self.runs.append(_Run(request_id, namespace, token_ids, num_cached))
        return None

    def step(self) -> None:
        """Plan, sometimes lose one again, copy, read, write, commit; sometimes fail and repeat."""
        planned = [(run, end) for run in self._some_runs() if (end := self._plan(run)) is not None]
        if planned and self.rng.random() < 0.1:
            run, _ = planned.pop()
            self._free(run, run.num_computed)
        self._move()
        planned = [(run, end) for run, end in planned if run in self.runs]
        copies = list(self.kv.take_copies())
        self.num_copies += len(copies)
        self.rng.shuffle(copies)  # their order among each other does not matter
        if self.rng.random() < 0.05:  # fails before it copied
            self._repeat_one_by_one(planned, copies)
            return
        self.storage.copy(copies)
        for run, end in planned:
            self._compute(run, end)
        for run, end in planned:
            self._commit(run, end)

    def _move(self) -> None:
        """Sometimes a slot fails; who counted on it begins again."""
        moves = self.kv.tiers.take_moves()
        written = [slot for slot, _ in moves.fills] + [slot for _, slot in moves.saves]
        failed = {slot for slot in written if self.rng.random() < 0.02}
        outcome = self.storage.move(moves, failed)
        self.kv.tiers.moved(moves, outcome)
        for run in self.runs[:]:
            if not outcome.unfilled_block_ids.isdisjoint(self.kv.block_ids(run.request_id)):
                self._free(run, run.num_computed)

    def forget(self) -> None:
        """Of a conversation without requests nothing is found any more that it alone has used."""
        self.kv.forget_conversations([self.rng.choice(_CONVERSATIONS)])

    def finish(self) -> None:
        run = self._any_run()
        self.texts.append(run.token_ids)
        self._free(run, run.num_computed)

    def cut(self) -> None:
        """A stop string ended the reply earlier; those tokens never become a conversation."""
        run = self._any_run()
        num_valid = self.rng.randint(0, run.num_computed)
        self.texts.append(run.token_ids[:num_valid])
        self._free(run, num_valid)

    def preempt(self) -> None:
        run = self._any_run()
        self.texts.append(run.token_ids)
        self._free(run, run.num_computed)

    def discard(self) -> None:
        run = self._any_run()
        self.runs.remove(run)
        self.kv.discard(run.request_id)

    def _prompt(self) -> list[int]:
        text = self.rng.choice(self.texts[-20:])
        kept = text[: self.rng.choice((len(text), self.rng.randint(0, len(text))))]
        added = self.rng.choices(_VOCABULARY, k=self.rng.randint(1, 8))
        return [*kept[: _LONGEST - len(added)], *added]

    def _some_runs(self) -> list[_Run]:
        return [run for run in self.runs if self.rng.random() < 0.8]

    def _any_run(self) -> _Run:
        return self.rng.choice(self.runs)

    def _plan(self, run: _Run) -> int | None:
        end = self.rng.randint(run.num_computed + 1, len(run.token_ids))
        if self.kv.extend(run.request_id, end):
            return end
        self._free(run, run.num_computed)
        return None

    def _free(self, run: _Run, num_valid: int) -> None:
        self.runs.remove(run)
        self.kv.free(run.request_id, run.token_ids, num_valid)

    def _compute(self, run: _Run, end: int) -> None:
        block_ids = self.kv.block_ids(run.request_id)
        cached = run.token_ids[: run.num_computed]
        assert self.storage.holds(block_ids, run.namespace, cached), f"{run} would read other KV"
        self.storage.write(block_ids, run.namespace, run.token_ids, run.num_computed, end)

    def _commit(self, run: _Run, end: int) -> None:
        self.kv.commit(run.request_id, run.token_ids, end)
        run.num_computed = end
        if end == len(run.token_ids):
            run.token_ids = [*run.token_ids, self.rng.choice(_VOCABULARY)]
        if len(run.token_ids) > _LONGEST:
            self._free(run, run.num_computed)

    def _repeat_one_by_one(self, planned: list[tuple[_Run, int]], copies: list[TailCopy]) -> None:
        """Some are ended before it is their turn again."""
        again = []
        for run, end in planned:
            if self.rng.random() < 0.3:
                self.runs.remove(run)
                self.kv.discard(run.request_id)
            elif self.rng.random() < 0.3:
                self._free(run, run.num_computed)
            else:
                again.append((run, end))
        self.storage.copy(copies)
        for run, end in again:
            self._compute(run, end)
            self._commit(run, end)


def _longest_published(kv: KVCacheManager, namespace: str, token_ids: list[int]) -> int:
    """By looking at every published block, without hashes or trees."""
    wanted = token_ids[:-1]
    lengths = [0]
    for block in kv._pool.blocks:
        if block.is_published and _root_of(block).namespace == namespace:
            lengths.append(_num_common(_path_of(block), wanted))
    return max(lengths)


def _root_of(block: Block) -> PrefixRoot:
    node = block.parent
    while isinstance(node, Block):
        node = node.parent
    assert isinstance(node, PrefixRoot)
    return node


def _path_of(block: Block) -> list[int]:
    path: list[int] = []
    node: object = block
    while isinstance(node, Block):
        path = [*node.token_ids, *path]
        node = node.parent
    return path


def _num_common(left: list[int], right: list[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _operate(engine: _Engine, num_operations: int) -> None:
    for _ in range(num_operations):
        engine.operate()
        engine.kv.check_integrity()
    for run in engine.runs[:]:
        engine.kv.discard(run.request_id)
    engine.kv.check_integrity()
    assert engine.kv.usage().num_in_use == 0


@pytest.mark.parametrize(
    ("seed", "num_blocks", "block_size"),
    [
        (1, 60, 4),
        (2, 24, 4),
        (3, 12, 4),
        (4, 6, 8),
        (5, 150, 4),
        (6, 40, 3),
        (7, 45, 1),
        (8, 3, 16),
    ],
)
def test_every_matched_slot_holds_the_kv_of_its_prefix(
    seed: int, num_blocks: int, block_size: int
) -> None:
    kv = make_kv_manager(num_blocks=num_blocks, block_size=block_size)
    engine = _Engine(kv, random.Random(seed))
    _operate(engine, 4000)
    assert engine.num_cached_tokens > 500
    assert kv.usage().num_evicted_total > 100
    assert (engine.num_copies > 50) == (block_size > 1)


@pytest.mark.parametrize(
    ("seed", "num_blocks", "block_size", "num_slots", "num_on_disk"),
    [
        (21, 24, 4, 40, 0),
        (22, 12, 4, 8, 0),
        (23, 6, 8, 3, 0),
        (24, 45, 1, 90, 0),
        (25, 12, 4, 8, 200),
        (26, 24, 4, 40, 60),
        (27, 40, 3, 12, 30),
        (28, 5, 8, 4, 50),
    ],
)
def test_what_comes_back_from_the_tiers_is_the_kv_of_its_prefix(
    seed: int, num_blocks: int, block_size: int, num_slots: int, num_on_disk: int
) -> None:
    disk = FakeDisk()
    tiers = Tiers(num_slots, make_disk_tier(disk, num_on_disk) if num_on_disk else None, 1000)
    kv = make_kv_manager(num_blocks=num_blocks, block_size=block_size, tiers=tiers)
    engine = _Engine(kv, random.Random(seed), disk if num_on_disk else None)
    _operate(engine, 3000)
    usage = kv.tiers.usage()
    assert engine.num_restored > 40
    assert usage.num_saved_total > 100
    assert usage.num_host_blocks > 0
    assert (usage.num_disk_blocks > 0) == (num_on_disk > 0)


def test_colliding_hashes_never_lead_to_other_kv(monkeypatch: pytest.MonkeyPatch) -> None:
    def weak_hash(parent: BlockHash, token_ids: Sequence[int]) -> BlockHash:
        return BlockHash(hash_block(parent, token_ids)[:1])

    monkeypatch.setattr(hashing, "hash_block", weak_hash)
    monkeypatch.setattr(prefix_cache, "hash_block", weak_hash)
    engine = _Engine(make_kv_manager(num_blocks=150), random.Random(9))
    _operate(engine, 3000)
    assert engine.num_cached_tokens > 2000


def test_without_caching_nothing_is_ever_cached() -> None:
    engine = _Engine(make_kv_manager(enable_prefix_caching=False), random.Random(10))
    _operate(engine, 1000)
    assert engine.num_cached_tokens == 0
    assert engine.kv.usage().num_free == 8
