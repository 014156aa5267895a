"""Answers as jobs of the server: watched, stopped, kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from engine import (
    ContextLengthError,
    FinishReason,
    QueueFullError,
    RequestProgress,
    RequestStatus,
    RequestTimings,
    Usage,
)
from tests.fake_runner import FakeClock
from tests.fakes import ScriptedChat
from ui.chat.answers import Answer, AnswerPhase, Answers, AnswerSnapshot, prompt_of
from ui.chat.chats import Chat, ChatError, ChatStore, Message, ReplyFacts, Role
from ui.chat.settings import ChatSettings


class Desk:
    """Answers on a scripted engine, with one chat of Alice's that ends in a question."""

    def __init__(self) -> None:
        self.engine = ScriptedChat()
        self.store = ChatStore()
        self.clock = FakeClock()
        self.answers = Answers(self.engine, self.engine, self.store, self.clock)  # type: ignore[arg-type]
        self.chat = self.store.with_question(self.store.new_chat("alice"), "Hello")

    async def start(self) -> Answer:
        return await self.answers.start("alice", self.chat)

    async def end_of(self, answer: Answer) -> Message:
        async for _ in answer.watch(interval_s=0.001):
            pass
        return self.store.get("alice", self.chat.chat_id).messages[-1]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_a_finished_answer_is_kept_with_its_facts() -> None:
    async def scenario() -> None:
        desk = Desk()
        answer = await desk.start()
        stream = desk.engine.streams[0]
        stream.say("Hi ", token_ids=(1,), usage=Usage(40, 32, 1))
        stream.say("there.", token_ids=(2,), usage=Usage(40, 32, 2))
        timings = RequestTimings(0.1, 0.2, 0.3, 0.5, 0.8)
        stream.say(finish_reason=FinishReason.STOP, usage=Usage(40, 32, 3), timings=timings)
        facts = ReplyFacts(
            num_prompt_tokens=40,
            num_cached_tokens=32,
            num_output_tokens=3,
            ttft_s=0.3,
            tokens_per_s=4.0,
            finish_reason=FinishReason.STOP,
        )
        assert await desk.end_of(answer) == Message(Role.ASSISTANT, "Hi there.", facts)
        assert desk.answers.find("alice", desk.chat.chat_id) is None

    run(scenario())


def test_the_phases_of_an_answer() -> None:
    async def scenario() -> None:
        desk = Desk()
        answer = await desk.start()
        stream = desk.engine.streams[0]
        assert answer.snapshot() == AnswerSnapshot(AnswerPhase.QUEUED, queue_position=3)
        stream.progress = RequestProgress(RequestStatus.RUNNING, None, 16, 40)
        assert answer.snapshot()[:5] == (AnswerPhase.READING, "", None, 16, 40)
        stream.say("Hi", token_ids=(1,), usage=Usage(40, 0, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        desk.clock.now_s = 2.0
        stream.say(" you", token_ids=(2, 3), usage=Usage(40, 0, 3))
        await asyncio.sleep(0)
        assert answer.snapshot() == AnswerSnapshot(
            AnswerPhase.WRITING, "Hi you", num_output_tokens=3, tokens_per_s=1.0
        )

    run(scenario())


def test_br_66_a_second_viewer_sees_all_from_the_start() -> None:
    async def scenario() -> None:
        desk = Desk()
        answer = await desk.start()
        desk.engine.streams[0].say("Hi there", token_ids=(1,), usage=Usage(40, 0, 1))
        texts: list[list[str]] = [[], []]

        async def view(seen: list[str]) -> None:
            async for snapshot in answer.watch(interval_s=0.001):
                seen.append(snapshot.text)

        viewers = [asyncio.create_task(view(seen)) for seen in texts]
        while not all(seen and seen[-1] == "Hi there" for seen in texts):
            await asyncio.sleep(0.001)
        desk.engine.streams[0].say(finish_reason=FinishReason.STOP)
        await asyncio.gather(*viewers)

    run(scenario())


def test_watching_is_heard_of_while_nothing_happens() -> None:
    async def scenario() -> None:
        answer = await Desk().start()
        watching = answer.watch(interval_s=0.001)
        assert [(await anext(watching)).phase for _ in range(3)] == [AnswerPhase.QUEUED] * 3

    run(scenario())


def test_br_35_stop_works_while_the_prompt_is_prepared() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.engine.preparing = asyncio.Event()
        starting = asyncio.create_task(desk.start())
        await asyncio.sleep(0)
        desk.answers.stop("alice", desk.chat.chat_id)
        desk.answers.stop("alice", desk.chat.chat_id)
        desk.engine.preparing.set()
        reply = await desk.end_of(await starting)
        assert (reply.text, reply.facts) == ("", ReplyFacts(finish_reason=FinishReason.ABORT))

    run(scenario())


def test_br_60_a_stopped_answer_keeps_its_words_and_the_next_can_start_at_once() -> None:
    async def scenario() -> None:
        desk = Desk()
        answer = await desk.start()
        desk.engine.streams[0].say("Half a", token_ids=(1,), usage=Usage(40, 0, 1))
        desk.answers.stop("alice", desk.chat.chat_id)
        reply = await desk.end_of(answer)
        assert reply.text == "Half a"
        desk.chat = desk.store.with_question(desk.store.get("alice", desk.chat.chat_id), "Go on.")
        await desk.start()
        sent = [(message.role, message.content) for message in desk.engine.requests[1].messages]
        assert sent == [("user", "Hello"), ("assistant", "Half a"), ("user", "Go on.")]

    run(scenario())


def test_a_second_send_in_one_chat_is_refused_but_not_in_another() -> None:
    async def scenario() -> None:
        desk = Desk()
        await desk.start()
        with pytest.raises(ChatError, match="still being written"):
            await desk.start()
        await desk.answers.start("alice", desk.store.with_question(Chat(chat_id="other"), "Hi"))
        await desk.answers.start("bob", desk.chat)
        assert len(desk.engine.streams) == 3

    run(scenario())


def test_br_59_nobody_stops_anothers_answer() -> None:
    async def scenario() -> None:
        desk = Desk()
        answer = await desk.start()
        desk.answers.stop("bob", desk.chat.chat_id)
        assert answer.snapshot().phase is AnswerPhase.QUEUED
        assert desk.answers.find("bob", desk.chat.chat_id) is None

    run(scenario())


def test_a_refused_question_leaves_no_trace() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.engine.refusals = [QueueFullError("The queue is full: try again in 2 s.", 2)]
        with pytest.raises(QueueFullError):
            await desk.start()
        assert desk.store.chats_of("alice") == ()
        assert desk.answers.find("alice", desk.chat.chat_id) is None

    run(scenario())


def test_a_reply_too_long_for_the_context_takes_what_is_left() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.engine.refusals = [ContextLengthError("Too long.")]
        await desk.start()
        assert [request.sampling.max_tokens for request in desk.engine.requests] == [512, None]
        assert desk.engine.requests[1].owner == desk.engine.requests[1].user == "alice"

    run(scenario())


def test_br_38_a_failed_answer_says_so_and_keeps_its_words() -> None:
    async def scenario() -> None:
        desk = Desk()
        answer = await desk.start()
        desk.engine.streams[0].say("Half", token_ids=(1,), usage=Usage(40, 0, 1))
        desk.engine.streams[0].say(finish_reason=FinishReason.ERROR, error="Out of memory.")
        reply = await desk.end_of(answer)
        facts = ReplyFacts(finish_reason=FinishReason.ERROR, error="Out of memory.")
        assert (reply.text, reply.facts) == ("Half", facts)

    run(scenario())


def test_an_answer_of_a_chat_that_was_deleted_ends_quietly() -> None:
    async def scenario() -> None:
        desk = Desk()
        answer = await desk.start()
        desk.store.delete("alice", desk.chat.chat_id)
        desk.engine.streams[0].say(finish_reason=FinishReason.STOP)
        async for _ in answer.watch(interval_s=0.001):
            pass
        assert desk.store.chats_of("alice") == ()

    run(scenario())


def test_a_chat_deleted_while_its_answer_is_prepared_stays_deleted() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.store.save("alice", desk.chat)
        desk.engine.preparing = asyncio.Event()
        starting = asyncio.create_task(desk.start())
        await asyncio.sleep(0)
        desk.answers.stop("alice", desk.chat.chat_id)
        desk.store.delete("alice", desk.chat.chat_id)
        desk.engine.preparing.set()
        with pytest.raises(ChatError, match="deleted"):
            await starting
        assert desk.store.chats_of("alice") == ()
        assert desk.answers.find("alice", desk.chat.chat_id) is None

    run(scenario())


def test_the_prompt_alternates_and_leaves_wordless_replies_out() -> None:
    messages = (
        Message(Role.USER, "One"),
        Message(Role.ASSISTANT, ""),
        Message(Role.USER, "<b>Two</b>"),
        Message(Role.ASSISTANT, "Yes"),
        Message(Role.USER, "Three"),
    )
    chat = Chat(chat_id="c", messages=messages, settings=ChatSettings(system_prompt="Be brief."))
    assert [tuple(message)[:2] for message in prompt_of(chat)] == [
        ("system", "Be brief."),
        ("user", "One\n\n<b>Two</b>"),
        ("assistant", "Yes"),
        ("user", "Three"),
    ]


def test_br_43_an_empty_system_prompt_is_none() -> None:
    chat = Chat(chat_id="c", messages=(Message(Role.USER, "Hi"),))
    blank = Chat(chat_id="c", messages=chat.messages, settings=ChatSettings(system_prompt=" \n"))
    assert prompt_of(chat) == prompt_of(blank)
    assert len(prompt_of(chat)) == 1
