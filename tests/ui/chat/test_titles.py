"""Titles that the model writes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine import EngineDeadError, FinishReason, QueueFullError
from tests.chat_factories import Desk, opened, say_all, until
from tests.factories import make_model_info
from ui.chat.titles import checked_title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Counting to three", "Counting to three"),
        ('  "Counting to three."\n', "Counting to three"),
        ("**Der Fuchs**", "Der Fuchs"),
        ("学习数数", "学习数数"),
        ("Don't panic", "Don't panic"),
        ("", None),
        ('""', None),
        ("Title:\nCounting", None),
        ("<think>\nhm", None),
        ("x" * 61, None),
    ],
)
def test_only_one_short_line_is_a_title(text: str, title: str | None) -> None:
    assert checked_title(text) == title


async def title_of(desk: Desk, asked: dict[str, Any], person: str = "alice") -> str:
    shown = await desk.conversations.conversation(person, asked["conversation_id"])
    return str(shown["title"])


def large(num_parameters: int) -> Any:
    return make_model_info(max_model_len=4096, num_blocks=256, num_parameters=num_parameters)


def test_a_large_model_names_a_conversation_after_its_first_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=large(1_000_000_000)) as desk:
            asked = await desk.answered("Count to three, please", "1 2 3")
            await until(lambda: len(desk.engine.streams) == 2)
            request = desk.engine.requests[1]
            contents = [message.content for message in request.messages]
            assert contents[:2] == ["Count to three, please", "1 2 3"]
            assert "title" in contents[2]
            assert request.sampling.max_tokens == 24
            desk.engine.streams[1].say('"Counting"')
            desk.engine.streams[1].say(finish_reason=FinishReason.STOP)
            while await title_of(desk, asked) != "Counting":
                await asyncio.sleep(0.001)
            await desk.answered("More", "4", asked["conversation_id"])
            await asyncio.sleep(0.05)
            assert len(desk.engine.streams) == 3  # no second title

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_small_model_leaves_the_first_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=large(135_000_000)) as desk:
            asked = await desk.answered("Count to three, please", "1 2 3")
            await asyncio.sleep(0.05)
            assert len(desk.engine.streams) == 1
            assert await title_of(desk, asked) == "Count to three, please"

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_who_names_can_be_set(tmp_path: Path) -> None:
    async def scenario() -> None:
        for mode, parameters, num_streams in (
            ("model", 135_000_000, 2),
            ("first-words", 8_000_000_000, 1),
        ):
            directory = tmp_path / mode
            async with opened(directory, info=large(parameters), auto_titles=mode) as desk:
                await desk.answered("Hello", "Hi")
                await asyncio.sleep(0.05)
                assert len(desk.engine.streams) == num_streams

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_person_s_title_stays_and_a_failure_leaves_the_first_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, auto_titles="model") as desk:
            asked = await desk.answered("Hello", "Hi")
            await until(lambda: len(desk.engine.streams) == 2)
            await desk.conversations.patch("alice", asked["conversation_id"], title="Mine")
            say_all(desk.engine.streams[1], "Not mine")
            await asyncio.sleep(0.05)
            assert await title_of(desk, asked) == "Mine"
            stopped = await desk.ask("Stopped at once")
            await desk.conversations.stop("alice", stopped["conversation_id"])
            await desk.end_of(stopped)
            for number, error in enumerate((QueueFullError("Full.", 1), EngineDeadError("Dead."))):
                asked = await desk.ask(f"Number {number}")
                desk.engine.refusals = [error]
                say_all(desk.engine.streams[-1], "1")
                await desk.end_of(asked)
                await until(lambda: not desk.engine.refusals)
                await asyncio.sleep(0.01)
                assert await title_of(desk, asked) == f"Number {number}"

    asyncio.run(asyncio.wait_for(scenario(), 20))
