"""Blocks hold 4 tokens; a request needs blocks for all its tokens and one more."""

from __future__ import annotations

from engine.block_room import BlockRoom, num_missing_blocks
from engine.kv.manager import KVCacheManager
from engine.request import Request
from tests.engine_factories import make_request
from tests.factories import compute_tokens, make_kv_manager


def take(room: BlockRoom, kv: KVCacheManager, request: Request) -> bool:
    return room.take(request, kv.match_prefix(request.request_id, request.token_ids))


def start(kv: KVCacheManager, request_id: str, num_tokens: int, first: int = 0) -> Request:
    request = make_request(request_id, range(first, first + num_tokens))
    compute_tokens(kv, request_id, request.token_ids)
    return request


def test_a_request_alone_always_has_room() -> None:
    kv = make_kv_manager(num_blocks=2)
    assert take(BlockRoom(kv, []), kv, make_request(prompt=range(8)))


def test_chosen_requests_are_counted() -> None:
    kv = make_kv_manager(num_blocks=5)
    room = BlockRoom(kv, [])
    assert take(room, kv, make_request("a", range(7)))
    assert take(room, kv, make_request("b", range(50, 57)))
    assert not take(room, kv, make_request("c", range(90, 97)))
    assert take(room, kv, make_request("d", [1]))


def test_what_running_prompts_still_need_is_set_aside() -> None:
    kv = make_kv_manager(num_blocks=8)
    running = make_request("a", range(23))
    kv.start("a", running.token_ids)
    kv.extend("a", 8)
    assert num_missing_blocks(kv, running) == 4
    assert not take(BlockRoom(kv, [running]), kv, make_request("b", range(50, 58)))
    assert take(BlockRoom(kv, [running]), kv, make_request("b", range(50, 57)))


def test_blocks_shared_with_a_running_request_cost_nothing() -> None:
    kv = make_kv_manager(num_blocks=5)
    running = start(kv, "a", 15)
    assert take(BlockRoom(kv, [running]), kv, make_request("b", range(13)))
    assert not take(BlockRoom(kv, [running]), kv, make_request("c", range(50, 63)))


def test_cached_blocks_count_as_free() -> None:
    kv = make_kv_manager(num_blocks=6)
    start(kv, "old", 16, first=50)
    kv.free("old", list(range(50, 66)), 16)
    running = start(kv, "a", 7)
    assert take(BlockRoom(kv, [running]), kv, make_request("b", range(80, 95)))
