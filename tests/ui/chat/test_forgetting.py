"""The engine is told to forget what a person deletes, after it was told to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chat_factories import Desk, opened, until
from tests.storage_factories import DAY_S
from tests.tiered_engine import answer_of, ask, tiny_engine
from ui.chat.conversation import NotFoundError
from ui.chat.forgetting import engine_name


def scenario(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), 30))

    return run


def names_of(desk: Desk, conversation_id: str) -> set[str]:
    ids = desk.store.message_ids("alice", conversation_id)
    return {engine_name("alice", message_id) for message_id in ids}


@scenario
async def test_requests_are_named_by_the_first_message_of_their_path(tmp_path: Path) -> None:
    async with opened(tmp_path) as desk:
        asked = await desk.answered("One?", "Yes.", question_id="first")
        await desk.answered("Two?", "No.", asked["conversation_id"])
        await desk.answered("Three?", "No.", person="bob", question_id="bobs")
        conversations = [request.conversation for request in desk.engine.requests]
        assert conversations == ["alice/first", "alice/first", "bob/bobs"]


@scenario
async def test_deleting_stops_then_forgets_every_branch(tmp_path: Path) -> None:
    async with opened(tmp_path) as desk:
        order: list[str] = []
        abort, forget = desk.engine.abort, desk.engine.forget

        def noting_abort(request_id: str) -> None:
            order.append("abort")
            abort(request_id)

        def noting_forget(names: Sequence[str]) -> None:
            order.append("forget")
            forget(names)

        desk.engine.abort = noting_abort  # type: ignore[method-assign]
        desk.engine.forget = noting_forget  # type: ignore[method-assign]
        asked = await desk.answered("One?", "Yes.", question_id="first")
        conversation_id = asked["conversation_id"]
        await desk.answered("One, really?", "No.", conversation_id, parent_id=None)
        running = await desk.ask("More?", conversation_id)
        names = names_of(desk, conversation_id)
        await desk.conversations.delete("alice", conversation_id)
        assert order == ["abort", "forget"]
        assert set(desk.engine.forgotten) == names
        assert {"alice/first", engine_name("alice", running["question_id"])} <= names
        assert len(names) == 6


@scenario
async def test_nobody_makes_the_engine_forget_anothers_conversation(tmp_path: Path) -> None:
    async with opened(tmp_path) as desk:
        asked = await desk.answered("One?", "Yes.")
        with pytest.raises(NotFoundError):
            await desk.conversations.delete("bob", asked["conversation_id"])
        assert desk.engine.forgotten == []


@scenario
async def test_a_question_whose_conversation_is_deleted_meanwhile_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as desk:
        asked = await desk.answered("One?", "Yes.", question_id="first")
        desk.engine.preparing = asyncio.Event()
        late = asyncio.create_task(desk.ask("Two?", asked["conversation_id"]))
        await until(lambda: len(desk.engine.prepared) == 2)
        await desk.conversations.delete("alice", asked["conversation_id"])
        desk.engine.forgotten.clear()
        desk.engine.preparing.set()
        with pytest.raises(NotFoundError):
            await late
        assert desk.engine.forgotten in ([], ["alice/first"])
        assert len(desk.engine.requests) == 1 + len(desk.engine.forgotten)


@scenario
async def test_what_is_erased_for_good_is_forgotten_once_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as desk:
        asked = await desk.answered("One?", "Yes.")
        names = names_of(desk, asked["conversation_id"])
        await desk.conversations.delete("alice", asked["conversation_id"])
        desk.engine.forgotten.clear()
        desk.wall.now_s += 2 * DAY_S
        await desk.conversations._forgetting.due()
        assert set(desk.engine.forgotten) == names


def test_a_deleted_chat_is_gone_from_a_real_engines_memory(tmp_path: Path) -> None:
    prompt = tuple(range(100))
    with tiny_engine(disk_cache=tmp_path) as engine:
        answer_of(ask(engine, "a", prompt, conversation=engine_name("alice", "m1")))
        engine.forget([engine_name("alice", "m2"), engine_name("bob", "m1")])
        assert answer_of(ask(engine, "b", prompt)).usage.num_cached_tokens > 90
        answer_of(ask(engine, "c", prompt[::-1], conversation=engine_name("alice", "m1")))
        engine.forget([engine_name("alice", "m1")])
        assert answer_of(ask(engine, "d", prompt[::-1])).usage.num_cached_tokens == 0
