"""Two tabs of two persons do anything at any time, while engine and database fail now and then."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from pathlib import Path
from typing import Any

import pytest

from engine import EngineDeadError, FinishReason, HearthError, QueueFullError, Usage
from tests.chat_factories import Desk, opened, until
from ui.chat.conversation import ChatError
from ui.chat.settings import ChatSettings

_NUM_ROUNDS = 150
_PERSONS = ("alice", "bob")


class _Chaos:
    """What it has been told was stored must be there at the end."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self._desk = desk
        self._random = random.Random(seed)
        self.calls: set[asyncio.Task[Any]] = set()
        self._left: set[asyncio.Task[Any]] = set()
        self.faults: list[str] = []
        self.asked: dict[str, list[dict[str, Any]]] = {person: [] for person in _PERSONS}

    async def run(self, num_rounds: int) -> None:
        for _ in range(num_rounds):
            person = self._random.choice(_PERSONS)
            call = asyncio.create_task(self._call(person))
            self.calls.add(call)
            call.add_done_callback(self._call_ended)
            self._let_the_engine_work()
            self._desk.store.failure = self._failure()
            self._desk.store.asking_failure = self._failure()
            if self._random.random() < 0.1:
                self._leave(self._random.choice(list(self.calls)))
            await asyncio.sleep(self._random.choice((0, 0, 0.001, 0.004)))
        self._desk.store.failure = self._desk.store.asking_failure = None

    def _leave(self, call: asyncio.Task[Any]) -> None:
        """Its browser has gone."""
        self._left.add(call)
        call.cancel()

    def _call_ended(self, call: asyncio.Task[Any]) -> None:
        self.calls.discard(call)
        if call.cancelled():
            if call not in self._left:
                self.faults.append("a call was cancelled")
        elif call.exception() is not None:
            self.faults.append(repr(call.exception()))

    def _failure(self) -> Exception | None:
        return OSError("disk full") if self._random.random() < 0.1 else None

    async def _call(self, person: str) -> None:
        conversations = self._desk.conversations
        asked = self._random.choice([*self.asked[person], {}])
        if not asked or self._random.random() < 0.4:
            await self._ask(person, asked.get("conversation_id"))
            return
        conversation_id = asked["conversation_id"]
        message_id = asked[self._random.choice(("question_id", "answer_id"))]
        settings = ChatSettings()
        act = self._random.choice(
            (
                lambda: conversations.regenerate(person, message_id, settings=settings),
                lambda: conversations.continue_answer(person, message_id, settings=settings),
                lambda: conversations.edit(person, message_id, "mine"),
                lambda: conversations.select(person, message_id),
                lambda: conversations.delete_message(person, message_id),
                lambda: conversations.restore_message(person, message_id),
                lambda: conversations.delete(person, conversation_id),
                lambda: conversations.restore(person, conversation_id),
                lambda: conversations.restore(person, conversation_id),
                lambda: conversations.stop(person, conversation_id),
                lambda: conversations.conversation(person, conversation_id),
            )
        )
        with contextlib.suppress(ChatError, HearthError):
            await act()

    async def _ask(self, person: str, conversation_id: str | None) -> None:
        if self._random.random() < 0.1:
            self._desk.engine.refusals.append(QueueFullError("full", 1))
        try:
            asked = await self._desk.ask(
                f"{person} {secrets.token_hex(4)}", conversation_id, person=person
            )
        except (ChatError, HearthError):
            return
        self.asked[person].append(asked)

    def _let_the_engine_work(self) -> None:
        for stream in self._desk.engine.streams[-6:]:
            kind = self._random.random()
            if kind < 0.5:
                stream.say(f"{stream.request_id} ", token_ids=(1,), usage=Usage(4, 0, 1))
            elif kind < 0.6:
                stream.say(finish_reason=FinishReason.STOP, usage=Usage(4, 0, 1))
            elif kind < 0.65:
                stream.fail(EngineDeadError("The engine is gone."))


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_mixed_or_left_behind(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            desk.answers._retry_intervals_s = (0.001, 0.002, 0.002)
            desk.answers._flush_interval_s = 0.003
            chaos = _Chaos(desk, seed)
            await chaos.run(_NUM_ROUNDS)
            await until(lambda: not chaos.calls)
            await until(lambda: not desk.conversations._questions._tasks)
            assert chaos.faults == []
            for stream in desk.engine.streams:
                stream.say(finish_reason=FinishReason.STOP)
            await until(lambda: not desk.answers._tasks)
            assert desk.answers._answers == {}
            assert all(stream.is_closed for stream in desk.engine.streams)
            with desk.database.reading() as connection:
                rows = connection.exec_driver_sql(
                    "SELECT c.person, m.state, m.role, m.text, m.message_id FROM messages m "
                    "JOIN conversations c ON c.key = m.conversation_key"
                ).all()
                assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
            stored = {row.message_id: row for row in rows}
            assert len(stored) > 40
            for person, asked in chaos.asked.items():
                for one in asked:
                    assert stored[one["question_id"]].person == person
                    assert stored[one["answer_id"]].person == person
            assert {row.state for row in rows}.isdisjoint({"writing"})
            for row in rows:
                if row.role == "user":
                    assert row.text.startswith(row.person)
                elif row.text != "mine":  # parts of one request, or of one and its continuations
                    numbers = row.text.split()
                    assert numbers == sorted(numbers, key=int)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("seed", range(8))
def test_the_server_may_end_at_any_moment(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            desk.answers._retry_intervals_s = (0.001, 0.002, 0.002)
            chaos = _Chaos(desk, seed)
            await chaos.run(20 + 5 * seed)
            running = {answer.message_id: answer for answer in desk.answers._tasks.values()}
            await desk.conversations.close()
            await until(lambda: not chaos.calls)
            assert chaos.faults == []
            said = {message_id: answer.text for message_id, answer in running.items()}
        for _ in range(2):
            async with opened(tmp_path) as desk:
                with desk.database.reading() as connection:
                    rows = connection.exec_driver_sql(
                        "SELECT message_id, state, text FROM messages"
                    )
                    stored = {row.message_id: row for row in rows}
                assert {row.state for row in stored.values()}.isdisjoint({"writing"})
                for asked in (one for person in _PERSONS for one in chaos.asked[person]):
                    assert {asked["question_id"], asked["answer_id"]} <= set(stored)
                for message_id, text in said.items():
                    assert stored[message_id].text == text

    asyncio.run(asyncio.wait_for(scenario(), 60))
