"""Faults reported of other servers, as far as blocks alone can show them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.kv.manager import KVCacheManager
from tests.factories import make_kv_manager
from tests.fakes import FakeKVStorage


class _Server:
    """Runs requests on a manager and checks what each would read."""

    def __init__(self, num_blocks: int) -> None:
        self.kv: KVCacheManager = make_kv_manager(num_blocks=num_blocks)
        self.storage = FakeKVStorage(self.kv.block_size)

    def start(self, request_id: str, token_ids: Sequence[int]) -> int:
        num_cached = self.kv.start(request_id, token_ids)
        assert num_cached is not None
        return num_cached

    def compute(self, request_id: str, token_ids: Sequence[int], start: int, end: int) -> None:
        assert self.kv.extend(request_id, end)
        self.storage.copy(self.kv.take_copies())
        block_ids = self.kv.block_ids(request_id)
        assert self.storage.holds(block_ids, "", token_ids[:start])
        self.storage.write(block_ids, "", token_ids, start, end)
        self.kv.commit(request_id, token_ids, end)
        self.kv.check_integrity()

    def answer(self, request_id: str, token_ids: Sequence[int]) -> int:
        """Start, compute and free; returns the number of cached tokens."""
        num_cached = self.start(request_id, token_ids)
        self.compute(request_id, token_ids, num_cached, len(token_ids))
        self.kv.free(request_id, token_ids, len(token_ids))
        return num_cached


def test_br_01_no_conversation_reads_anothers_blocks_under_eviction() -> None:
    server, rng = _Server(num_blocks=30), random.Random(1)
    chats = [[100 + chat, *range(35)] for chat in range(40)]  # the canary comes first
    for turn in range(400):
        chat = rng.randrange(40)
        num_common = server.answer(f"turn {turn}", chats[chat])
        assert num_common <= len(chats[chat]) - 1
        chats[chat] = [*chats[chat][:35], rng.randrange(5)]
        assert server.answer(f"stranger {turn}", [7, rng.randrange(3)]) <= 1
    assert server.kv.usage().num_evicted_total > 100


def test_br_01_cached_tokens_are_the_true_common_prefix() -> None:
    server = _Server(num_blocks=30)
    assert server.answer("a", [1, 2, 3, 4, 5, 6, 7]) == 0
    assert server.answer("b", [1, 2, 3, 4, 5, 9]) == 5
    assert server.answer("c", [9, 2, 3, 4, 5, 6, 7]) == 0
    assert server.answer("d", [1, 2, 3, 4, 5, 6, 7]) == 6


def test_br_03_cancel_and_retry_over_a_shared_prefix() -> None:
    shared = list(range(18))
    prompts = {name: [*shared, 100 + index, *range(5)] for index, name in enumerate("abcd")}
    for num_computed in range(1, 24):
        server = _Server(num_blocks=40)
        ends = {}
        for name, prompt in prompts.items():
            num_cached = server.start(name, prompt)
            ends[name] = max(num_computed, num_cached + 1)
            server.compute(name, prompt, num_cached, ends[name])
        for name in "ab":
            server.kv.free(name, prompts[name], ends[name])
        for name in "abef":
            server.answer(f"again {name}", prompts.get(name, list(range(50, 70))))
        for name in "cd":
            server.compute(name, prompts[name], ends[name], 24)
            server.kv.free(name, prompts[name], 24)
        server.kv.check_integrity()
        assert server.kv.usage().num_in_use == 0


def test_br_04_abort_during_chunked_prefill_leaves_only_what_was_computed() -> None:
    document = list(range(60))
    for num_computed in range(0, 60, 7):
        server = _Server(num_blocks=16)
        server.start("document", document)
        if num_computed:
            server.compute("document", document, 0, num_computed)
        server.kv.extend("document", 60)
        server.kv.free("document", document, num_computed)
        assert server.kv.match_prefix("again", document).num_tokens == num_computed
        for index in range(20):  # freed blocks are used again
            server.answer(f"other {index}", [1000 + index] * 10)
        server.answer("again", document)
        server.kv.check_integrity()


def test_br_06_tokens_past_a_stop_string_are_not_keyed_as_the_reply() -> None:
    server = _Server(num_blocks=16)
    reply = list(range(30))
    server.start("a", reply)
    server.compute("a", reply, 0, 30)
    server.kv.free("a", reply, 18)  # the stop string began after 18 tokens
    assert server.kv.match_prefix("whole reply", reply).num_tokens == 18
    assert server.answer("b", [*reply[:18], 99, 98, 97]) == 18
    assert server.answer("c", reply) == 18
    assert server.kv.usage().num_in_use == 0
