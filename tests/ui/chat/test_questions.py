"""Where questions go in the tree, and what becomes of those that come at the wrong moment."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.chat_factories import Desk, opened, until
from tests.storage_factories import DAY_S
from ui.chat.storage_threads import StoppingError


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def texts(desk: Desk, asked: dict[str, Any]) -> list[str]:
    return [message["text"] for message in await desk.messages(asked)]


def test_a_question_after_a_deleted_answer_stays_when_that_is_restored(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            first = await desk.answered("one", "1")
            await desk.conversations.delete_message("alice", first["answer_id"])
            await desk.answered("two", "2", first["conversation_id"])
            sent = desk.engine.requests[-1].messages
            assert [message.content for message in sent] == ["one\n\ntwo"]
            await desk.conversations.restore_message("alice", first["answer_id"])
            assert await texts(desk, first) == ["one", "1", "two", "2"]

    run(scenario())


@pytest.mark.parametrize("is_erased", [False, True])
def test_a_question_below_a_deleted_answer_can_be_edited(tmp_path: Path, is_erased: bool) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            first = await desk.answered("one", "1")
            second = await desk.answered("two", "2", first["conversation_id"])
            await desk.conversations.delete_message("alice", first["answer_id"])
            if is_erased:
                desk.store.purge(desk.wall.now_s + 2 * DAY_S)
            question = (await desk.messages(first))[1]
            assert question["message_id"] == second["question_id"]
            parent_id = question["parent_id"]
            await desk.answered("two!", "2!", first["conversation_id"], parent_id=parent_id)
            assert await texts(desk, first) == ["one", "two!", "2!"]
            edited = (await desk.messages(first))[1]
            assert edited["variant_ids"] == [second["question_id"], edited["message_id"]]

    run(scenario())


def test_a_question_that_the_servers_end_interrupts_is_refused_in_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            desk.engine.preparing = asyncio.Event()
            asking = asyncio.create_task(desk.ask("Hello"))
            await until(lambda: desk.engine.prepared)
            await desk.conversations.close()
            with pytest.raises(StoppingError):
                await asking

    run(scenario())
