"""Answers as jobs of the server: watched, stopped, kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from engine import (
    EngineDeadError,
    FinishReason,
    QueueFullError,
    RequestTimings,
    RequestTrace,
    Usage,
)
from engine.text.transcript import Transcript
from tests.chat_factories import opened, say_all, until
from ui.chat.conversation import ChatError, ConflictError, LimitError
from ui.chat.settings import ChatSettings


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def test_a_finished_answer_is_kept_with_its_facts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            stream = desk.engine.streams[0]
            stream.say("Hi ", token_ids=(1,), usage=Usage(40, 32, 1))
            stream.say("there.", token_ids=(2,), usage=Usage(40, 32, 2))
            stream.transcript = Transcript(b"d" * 32, b"ids")
            stream.say(
                finish_reason=FinishReason.STOP,
                usage=Usage(40, 32, 3),
                timings=RequestTimings(0.1, 0.2, 0.3, 0.5, 0.8),
                trace=RequestTrace(4, 5, 1, 2, 3, 2.5, 4096),
            )
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("Hi there.", "done")
            assert answer["facts"] == {
                "finish_reason": "stop",
                "error": None,
                "num_prompt_tokens": 40,
                "num_cached_tokens": 32,
                "num_output_tokens": 3,
                "tokens_per_s": 4.0,
                "ttft_s": 0.3,
                "queued_s": 0.1,
                "prefill_s": 0.2,
                "decode_s": 0.5,
                "num_ahead": 4,
                "num_running": 5,
                "num_preemptions": 1,
                "num_recomputed_tokens": 4096,
                "mean_step_requests": 2.5,
            }
            assert desk.store.transcripts("alice", [asked["answer_id"]]) == [(b"d" * 32, b"ids")]

    run(scenario())


def test_br_35_stop_works_while_the_prompt_is_prepared(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            first = await desk.answered("Hello", "Hi")
            desk.engine.preparing = asyncio.Event()
            asking = asyncio.create_task(desk.ask("More", first["conversation_id"]))
            await until(lambda: len(desk.engine.prepared) == 2)
            await desk.conversations.stop("alice", first["conversation_id"])
            await desk.conversations.stop("alice", first["conversation_id"])
            desk.engine.preparing.set()
            answer = await desk.end_of(await asking)
            assert (answer["text"], answer["state"]) == ("", "stopped")
            assert answer["facts"]["finish_reason"] == "abort"

    run(scenario())


def test_br_60_a_stopped_answer_keeps_its_words_and_the_next_can_start_at_once(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            desk.engine.streams[0].say("Half a", token_ids=(1,), usage=Usage(40, 0, 1))
            await until(lambda: desk.answers.find("alice", asked["conversation_id"]).text)
            await desk.conversations.stop("alice", asked["conversation_id"])
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("Half a", "stopped")
            await desk.ask("Go on.", asked["conversation_id"])
            sent = [(message.role, message.content) for message in desk.engine.requests[1].messages]
            assert sent == [("user", "Hello"), ("assistant", "Half a"), ("user", "Go on.")]

    run(scenario())


def test_br_60_what_can_be_done_right_after_a_stop(tmp_path: Path) -> None:
    """Ask, delete, regenerate, stop again: nothing earlier is lost."""

    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.answered("One", "1")
            conversation_id = asked["conversation_id"]
            desk.engine.abort = lambda request_id: None  # type: ignore[method-assign]
            second = await desk.ask("Two", conversation_id)
            desk.engine.streams[1].say("Tw", token_ids=(1,))
            await until(lambda: desk.answers.find("alice", conversation_id).text)
            await desk.conversations.stop("alice", conversation_id)
            with pytest.raises(ConflictError):  # the engine has not let go of it yet
                await desk.ask("Three", conversation_id)
            await desk.conversations.stop("alice", conversation_id)
            desk.engine.streams[1].say(finish_reason=FinishReason.ABORT)
            await desk.end_of(second)
            await desk.conversations.delete_message("alice", second["answer_id"])
            assert [m["text"] for m in await desk.messages(asked)] == ["One", "1", "Two"]
            await desk.conversations.restore_message("alice", second["answer_id"])
            again = await desk.conversations.regenerate(
                "alice", second["answer_id"], settings=ChatSettings()
            )
            say_all(desk.engine.streams[2], "Two!")
            await desk.end_of(again)
            shown = await desk.messages(asked)
            assert [m["text"] for m in shown] == ["One", "1", "Two", "Two!"]
            assert shown[-1]["variant_ids"] == [second["answer_id"], again["answer_id"]]

    run(scenario())


def test_br_60_a_stop_exactly_at_the_end_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            say_all(desk.engine.streams[0], "Hi")  # the end is on its way
            for _ in range(2):
                await desk.conversations.stop("alice", asked["conversation_id"])
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("Hi", "done")
            await desk.conversations.stop("alice", asked["conversation_id"])
            assert await desk.last(asked) == answer

    run(scenario())


def test_two_sends_at_once_in_one_conversation_are_not_mixed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            first = await desk.answered("Hello", "Hi")
            conversation_id = first["conversation_id"]
            results = await asyncio.gather(
                desk.ask("A", conversation_id),
                desk.ask("B", conversation_id),
                desk.ask("elsewhere"),
                desk.ask("Hello", person="bob"),
                return_exceptions=True,
            )
            refused = [result for result in results if isinstance(result, ConflictError)]
            assert len(refused) == 1
            assert "still being written" in str(refused[0])
            assert len(desk.engine.streams) == 4
            texts = [message["text"] for message in await desk.messages(first)]
            assert texts in (["Hello", "Hi", "A", ""], ["Hello", "Hi", "B", ""])

    run(scenario())


def test_the_same_question_twice_is_one_question(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            sends = (desk.ask("Hello", question_id="q" * 20) for _ in range(2))
            first, second = await asyncio.gather(*sends)
            assert first == second
            assert await desk.ask("Hello", question_id="q" * 20) == first  # while it is answered
            say_all(desk.engine.streams[0], "Hi")
            await desk.end_of(first)
            assert await desk.ask("Hello", question_id="q" * 20) == first
            assert len(desk.engine.streams) == 1
            assert len((await desk.conversations.entries("alice"))["entries"]) == 1

    run(scenario())


def test_br_59_nobody_stops_or_reads_anothers_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            conversation_id = asked["conversation_id"]
            await desk.conversations.stop("bob", conversation_id)
            assert not desk.answers.find("alice", conversation_id).is_stopping
            for call in (
                desk.conversations.conversation("bob", conversation_id),
                desk.ask("And?", conversation_id, person="bob"),
                desk.ask("And?", person="bob", parent_id=asked["answer_id"]),
                desk.conversations.regenerate("bob", asked["answer_id"], settings=ChatSettings()),
                desk.conversations.continue_answer(
                    "bob", asked["answer_id"], settings=ChatSettings()
                ),
                desk.conversations.edit("bob", asked["answer_id"], "mine"),
                desk.conversations.delete("bob", conversation_id),
            ):
                with pytest.raises(ChatError) as caught:
                    await call
                assert caught.value.code == "not_found"
            assert len(desk.engine.streams) == 1

    run(scenario())


def test_a_refusal_stores_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            desk.engine.refusals = [QueueFullError("Later.", 3)]
            with pytest.raises(QueueFullError):
                await desk.ask("Hello")
            with pytest.raises(ChatError, match="Write something"):
                await desk.ask("  \n")
            with pytest.raises(LimitError):
                await desk.ask("a" * 300_000)
            assert (await desk.conversations.entries("alice"))["entries"] == []
            first = await desk.answered("Hello", "Hi")
            desk.engine.refusals = [EngineDeadError("The engine has stopped.")]
            with pytest.raises(EngineDeadError):
                await desk.ask("More", first["conversation_id"])
            await desk.ask("More", first["conversation_id"])  # and it is free again

    run(scenario())


def test_an_engine_that_fails_leaves_a_failed_answer_with_what_it_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            endings = [
                {"error": EngineDeadError("The engine has stopped.")},
                {"error": RuntimeError("secret detail")},
                {"finish_reason": FinishReason.ERROR, "error": "The model gave no numbers."},
            ]
            reasons = []
            for number, ending in enumerate(endings):
                asked = await desk.ask("Hello")
                stream = desk.engine.streams[number]
                stream.say("So far", token_ids=(1,), usage=Usage(40, 0, 1))
                error = ending["error"]
                if isinstance(error, Exception):
                    stream.fail(error)
                else:
                    stream.say(**ending)
                answer = await desk.end_of(asked)
                assert (answer["text"], answer["state"]) == ("So far", "failed")
                assert answer["facts"]["num_prompt_tokens"] == 40
                assert answer["facts"]["num_output_tokens"] == 1
                reasons.append(answer["facts"]["error"])
            assert reasons[0] == "The engine has stopped."
            assert "its log" in reasons[1].lower()
            assert "secret" not in reasons[1]
            assert reasons[2] == "The model gave no numbers."

    run(scenario())


def test_running_answers_are_written_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = [await desk.ask("Hello", person=f"p{number}") for number in range(50)]
            desk.store.written.clear()
            for stream in desk.engine.streams:
                stream.say("Some", token_ids=(1,))
                stream.say(" words", token_ids=(2,))
            await until(lambda: sum(map(len, desk.store.written)) >= 50)
            assert [len(updates) for updates in desk.store.written] == [50]
            assert {update.text for update in desk.store.written[0]} == {"Some words"}
            await asyncio.sleep(1.1)  # two more turns with nothing new
            assert len(desk.store.written) == 1
            stored = desk.store.conversation("p7", asked[7]["conversation_id"])
            assert (stored.messages[-1].text, stored.messages[-1].state) == (
                "Some words",
                "writing",
            )

    run(scenario())


def test_an_answer_that_nobody_watches_ends_after_its_grace_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, answer_grace_s=120.0) as desk:
            watch = desk.conversations.open_watch("alice")
            asked = await desk.ask("Read later")
            desk.conversations.open_watch("bob").show(asked["conversation_id"])  # it is not his
            desk.engine.streams[0].say("Some", token_ids=(1,), usage=Usage(40, 0, 1))
            await until(lambda: desk.answers.find("alice", asked["conversation_id"]).text)
            desk.clock.now_s = 300.0  # her page shows another chat all the time
            desk.answers.end_unwatched()
            watch.close()
            desk.clock.now_s = 419.0
            desk.answers.end_unwatched()
            assert not desk.answers.find("alice", asked["conversation_id"]).is_stopping
            desk.clock.now_s = 421.0
            desk.answers.end_unwatched()
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("Some", "stopped")
            assert answer["facts"]["error"] == "Nobody was watching any more."

    run(scenario())


def test_a_shutdown_keeps_what_was_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            desk.engine.streams[0].say("Half a", token_ids=(1,), usage=Usage(40, 0, 1))
            await until(lambda: desk.answers.find("alice", asked["conversation_id"]).text)
        assert desk.engine.streams[0].is_closed
        async with opened(tmp_path) as desk:
            answer = await desk.last(asked)
            assert (answer["text"], answer["state"]) == ("Half a", "interrupted")
            assert "server was stopped" in answer["facts"]["error"]
            assert answer["facts"]["num_output_tokens"] == 1

    run(scenario())


def test_after_a_crash_what_was_flushed_is_there_and_the_chat_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            desk.engine.streams[0].say("Half a", token_ids=(1,))
            await until(lambda: desk.store.written)
            desk.store.failure = RuntimeError("the process is gone")  # nothing more is stored
        async with opened(tmp_path) as desk:
            answer = await desk.last(asked)
            assert (answer["text"], answer["state"]) == ("Half a", "interrupted")
            await desk.answered("And?", "More.", asked["conversation_id"])
            sent = desk.engine.requests[0].messages
            assert [message.content for message in sent] == ["Hello", "Half a", "And?"]

    run(scenario())


@pytest.mark.parametrize("failure", [ChatError("The disk is full."), RuntimeError("bad page")])
def test_an_answer_waits_in_memory_for_a_database_that_fails(
    tmp_path: Path, failure: Exception
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            desk.answers._retry_intervals_s = (0.01, 0.01)
            asked = await desk.ask("Hello")
            conversation_id = asked["conversation_id"]
            desk.store.failure = failure
            say_all(desk.engine.streams[0], "Precious words")
            answer = desk.answers.find("alice", conversation_id)
            await until(lambda: answer.unsaved is not None)
            shown = await desk.last(asked)
            assert (shown["text"], shown["state"]) == ("Precious words", "failed")
            assert "not saved yet" in shown["facts"]["error"]
            assert "full" not in shown["facts"]["error"]
            with pytest.raises(ConflictError, match="not saved yet"):
                await desk.ask("More", conversation_id)
            desk.store.failure = None
            ended = await desk.end_of(asked)
            assert (ended["text"], ended["state"]) == ("Precious words", "done")
            assert ended["facts"]["error"] is None
            assert ended["revision"] > shown["revision"] - 1

    run(scenario())


def test_an_answer_is_stored_however_long_the_database_failed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            desk.answers._retry_intervals_s = (0.0,)
            asked = await desk.ask("Hello")
            desk.store.failure = ChatError("The disk is full.")
            say_all(desk.engine.streams[0], "All of it")
            await until(lambda: desk.store.num_failed_ends > 1000)
            desk.store.failure = None
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("All of it", "done")
            await desk.answered("On", "we go", asked["conversation_id"])

    run(scenario())


def test_a_database_that_fails_while_an_answer_grows_costs_no_text(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            desk.store.failure = ChatError("The database is busy.")
            desk.engine.streams[0].say("One", token_ids=(1,))
            await until(lambda: desk.answers.find("alice", asked["conversation_id"]).text)
            with pytest.raises(ChatError):
                await desk.answers.flush()
            desk.store.failure = None
            desk.engine.streams[0].say(", two", token_ids=(2,))
            await until(lambda: desk.store.written)
            assert desk.store.written[-1][0].text in ("One", "One, two")
            say_all(desk.engine.streams[0], ", three")
            assert (await desk.end_of(asked))["text"] == "One, two, three"

    run(scenario())


def test_a_caller_who_goes_away_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            desk.engine.preparing = asyncio.Event()
            asking = asyncio.create_task(desk.ask("Hello"))
            await until(lambda: desk.engine.prepared)
            asking.cancel()
            await asyncio.wait([asking])
            desk.engine.preparing.set()
            await until(lambda: desk.engine.streams)
            say_all(desk.engine.streams[0], "Hi")
            entry = None
            while entry is None or entry["is_answering"]:
                entries = (await desk.conversations.entries("alice"))["entries"]
                entry = entries[0] if entries else None
            shown = await desk.last({"conversation_id": entry["conversation_id"]})
            assert (shown["text"], shown["state"]) == ("Hi", "done")

    run(scenario())


def test_a_continued_answer_loses_nothing_and_its_facts_add_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Count")
            timings = RequestTimings(0.1, 0.2, 0.3, 1.0, 1.5)
            length = FinishReason.LENGTH
            stream = desk.engine.streams[0]
            stream.say("one two", token_ids=(1, 2), usage=Usage(40, 32, 3))
            stream.say(finish_reason=length, usage=Usage(40, 32, 3), timings=timings)
            await desk.end_of(asked)
            await desk.conversations.continue_answer(
                "alice", asked["answer_id"], settings=ChatSettings()
            )
            assert desk.engine.requests[1].continue_final_message
            assert desk.engine.requests[1].messages[-1].content == "one two"
            assert (await desk.last(asked))["text"] == "one two"
            stream = desk.engine.streams[1]
            stream.say(" three", token_ids=(3,), usage=Usage(43, 42, 2))
            timings = RequestTimings(0.2, 0.1, 0.3, 1.0, 1.5)
            stream.say(finish_reason=FinishReason.STOP, usage=Usage(43, 42, 2), timings=timings)
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("one two three", "done")
            facts = answer["facts"]
            assert (facts["num_prompt_tokens"], facts["num_cached_tokens"]) == (40, 32)
            assert (facts["num_output_tokens"], facts["finish_reason"]) == (5, "stop")
            assert (facts["ttft_s"], facts["decode_s"], facts["tokens_per_s"]) == (0.3, 2.0, 1.5)
            assert facts["queued_s"] == pytest.approx(0.3)

    run(scenario())


def test_a_continued_answer_that_is_stopped_at_once_keeps_its_text(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.answered("Count", "one two")
            await desk.conversations.continue_answer(
                "alice", asked["answer_id"], settings=ChatSettings()
            )
            await desk.conversations.stop("alice", asked["conversation_id"])
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("one two", "stopped")
            assert answer["facts"]["num_output_tokens"] == 3

    run(scenario())


def test_going_on_with_an_answer_without_a_word_writes_it_from_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            await desk.conversations.stop("alice", asked["conversation_id"])
            await desk.end_of(asked)
            again = await desk.conversations.continue_answer(
                "alice", asked["answer_id"], settings=ChatSettings()
            )
            assert again["answer_id"] == asked["answer_id"]
            assert not desk.engine.requests[1].continue_final_message
            say_all(desk.engine.streams[1], "Hi")
            assert (await desk.end_of(asked))["text"] == "Hi"
            with pytest.raises(ChatError, match="Only an answer"):
                await desk.conversations.continue_answer(
                    "alice", asked["question_id"], settings=ChatSettings()
                )

    run(scenario())


def test_an_engine_that_is_stopped_interrupts_its_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.ask("Hello")
            desk.engine.streams[0].say("Half", token_ids=(1,))
            desk.engine.streams[0].say(finish_reason=FinishReason.ABORT)
            answer = await desk.end_of(asked)
            assert (answer["text"], answer["state"]) == ("Half", "interrupted")

    run(scenario())
