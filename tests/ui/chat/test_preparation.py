"""A context that is full: refused with the numbers, or cut as the person chose; never silently."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from engine import FinishReason, ModelInfo, QueueFullError
from tests.chat_factories import Desk, events_until, opened, say_all, until
from tests.factories import make_model_info
from ui.chat.conversation import ChatError
from ui.chat.room import ContextFullError, OnFull
from ui.chat.settings import ChatSettings

FRENCH = "Always answer in French."
SETTINGS = ChatSettings(system_prompt=FRENCH, max_tokens=512)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def small() -> ModelInfo:
    """A context of 320 tokens (words here): 64 are the least room for a reply."""
    return make_model_info(max_model_len=320, num_blocks=256)


def words(number: int, name: str = "w") -> str:
    return " ".join(f"{name}{index}" for index in range(number))


async def grown(desk: Desk) -> dict[str, Any]:
    """Four turns of 30 words each, and the system prompt's 4: 124 words."""
    asked = await desk.answered(words(20, "q0-"), words(10, "a0-"), settings=SETTINGS)
    for turn in range(1, 4):
        await desk.answered(
            words(20, f"q{turn}-"),
            words(10, f"a{turn}-"),
            asked["conversation_id"],
            settings=SETTINGS,
        )
    return asked


async def refused(desk: Desk, text: str, conversation_id: str | None, **options: Any) -> Any:
    options = {"settings": SETTINGS} | options
    with pytest.raises(ContextFullError) as caught:
        await desk.ask(text, conversation_id, **options)
    return caught.value


def contents(desk: Desk, number: int = -1) -> list[str]:
    return [message.content for message in desk.engine.requests[number].messages]


def test_a_reply_that_does_not_fit_in_full_is_shorter(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await grown(desk)
            await desk.ask(words(100), asked["conversation_id"], settings=SETTINGS)
            assert desk.engine.max_tokens[-1] == 320 - 224
            assert (await desk.messages(asked))[-2]["cut"] is None

    run(scenario())


def test_br_68_a_full_context_is_refused_with_the_numbers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await grown(desk)
            conversation_id = asked["conversation_id"]
            before = await desk.messages(asked)
            num_streams = len(desk.engine.streams)
            error = await refused(desk, words(140), conversation_id)
            assert error.code == "context_full"
            # 264 + 64 > 320. Down to 192: the last turn of 30 stays beside 4 + 140.
            assert error.details == {
                "used": 264,
                "max": 320,
                "choices": ["drop", "summarise"],
                "num_left_out": 6,
            }
            assert "264" in str(error)
            assert await desk.messages(asked) == before
            assert len(desk.engine.streams) == num_streams

    run(scenario())


def test_br_68_dropping_keeps_the_system_prompt_and_the_question_and_says_so(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await grown(desk)
            question = words(140, "last-")
            options = {"on_full": OnFull.DROP, "settings": SETTINGS}
            await desk.ask(question, asked["conversation_id"], **options)
            assert contents(desk) == [FRENCH, words(20, "q3-"), words(10, "a3-"), question]
            shown = await desk.messages(asked)
            first_id = shown[6]["message_id"]
            assert shown[8]["cut"] == {
                "first_message_id": first_id,
                "num_left_out": 6,
                "summary": "",
            }
            say_all(desk.engine.streams[-1], "Oui.")
            await desk.end_of(asked)
            await desk.ask("Next?", asked["conversation_id"], settings=SETTINGS)
            assert contents(desk) == [
                FRENCH,
                words(20, "q3-"),
                words(10, "a3-"),
                question,
                "Oui.",
                "Next?",
            ]

    run(scenario())


@pytest.mark.parametrize("on_full", [None, OnFull.DROP, OnFull.SUMMARISE])
@pytest.mark.parametrize("num_words", [253, 480, 5_000])
def test_br_68_a_question_that_is_too_long_alone_is_never_cut(
    tmp_path: Path, on_full: OnFull | None, num_words: int
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            error = await refused(desk, words(num_words), None, on_full=on_full)
            assert error.details["choices"] == []
            assert error.details["used"] == num_words + 4
            asked = await grown(desk)
            error = await refused(desk, words(num_words), asked["conversation_id"])
            assert error.details["choices"] == []
            assert "shorten" in str(error)

    run(scenario())


def test_br_68_a_chat_grown_past_the_limit_turn_by_turn(tmp_path: Path) -> None:
    """Each turn either fits, or is refused and goes through with a notice."""

    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await desk.answered(words(20), words(10), settings=SETTINGS)
            choices: list[tuple[OnFull, ...]] = []
            for turn in range(30):
                question = words(20, f"q{turn}-")
                options: dict[str, Any] = {"settings": SETTINGS}
                try:
                    await desk.ask(question, asked["conversation_id"], **options)
                except ContextFullError as error:
                    choices.append(error.choices)
                    options["on_full"] = OnFull.DROP
                    await desk.ask(question, asked["conversation_id"], **options)
                sent = contents(desk)
                assert sent[0] == FRENCH
                assert sent[-1] == question
                assert sum(len(text.split()) for text in sent) <= 320 - 64
                say_all(desk.engine.streams[-1], words(10, f"a{turn}-"))
                await desk.end_of(asked)
            cuts = [message["cut"] for message in await desk.messages(asked) if message["cut"]]
            assert set(choices) == {(OnFull.DROP, OnFull.SUMMARISE)}
            assert len(choices) >= len(cuts) > 0
            assert len(choices) <= 12  # a cut leaves room for some turns, or this were 22

    run(scenario())


def test_summarising_puts_the_model_s_summary_in_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await grown(desk)
            watch = desk.conversations.open_watch("alice")
            watch.show(asked["conversation_id"])
            options = {"on_full": OnFull.SUMMARISE, "settings": SETTINGS}
            question = words(140, "last-")
            asking = asyncio.create_task(desk.ask(question, asked["conversation_id"], **options))
            await until(lambda: len(desk.engine.streams) == 5)
            summary_request = contents(desk)
            assert summary_request[:2] == [FRENCH, words(20, "q0-")]
            assert "Summarise" in summary_request[-1]
            assert words(20, "q3-") not in summary_request[-1]
            assert desk.engine.requests[-1].sampling.max_tokens == 320 // 8
            event = (await events_until(watch, lambda e: e["type"] == "answer"))[-1]
            assert event["phase"] == "summarising"
            assert len(await desk.messages(asked)) == 8  # nothing is stored yet
            say_all(desk.engine.streams[-1], " They counted. ")
            await asking
            sent = contents(desk)
            assert sent[0] == f"{FRENCH}\n\nSummary of the conversation so far: They counted."
            assert sent[-1] == question
            cut = (await desk.messages(asked))[-2]["cut"]
            assert cut["summary"] == "They counted."
            assert cut["num_left_out"] > 0

    run(scenario())


@pytest.mark.parametrize(
    "ending",
    [
        {"finish_reason": FinishReason.ERROR, "error": "No memory."},
        {"finish_reason": FinishReason.STOP},
    ],
)
def test_a_summary_that_fails_is_said_and_nothing_is_dropped(
    tmp_path: Path, ending: dict[str, Any]
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await grown(desk)
            options = {"on_full": OnFull.SUMMARISE, "settings": SETTINGS}
            asking = asyncio.create_task(desk.ask(words(140), asked["conversation_id"], **options))
            await until(lambda: len(desk.engine.streams) == 5)
            desk.engine.streams[-1].say(**ending)
            with pytest.raises(ContextFullError, match="could not be summarised") as caught:
                await asking
            assert caught.value.choices == (OnFull.DROP,)
            assert len(await desk.messages(asked)) == 8
            desk.engine.refusals = [QueueFullError("Later.", 1)]
            with pytest.raises(QueueFullError):
                await desk.ask(words(140), asked["conversation_id"], **options)
            assert desk.answers.find("alice", asked["conversation_id"]) is None

    run(scenario())


def test_a_summary_can_be_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await grown(desk)
            options = {"on_full": OnFull.SUMMARISE, "settings": SETTINGS}
            asking = asyncio.create_task(desk.ask(words(140), asked["conversation_id"], **options))
            await until(lambda: len(desk.engine.streams) == 5)
            await desk.conversations.stop("alice", asked["conversation_id"])
            with pytest.raises(ChatError) as caught:
                await asking
            assert caught.value.code == "stopped"
            assert len(await desk.messages(asked)) == 8
            await desk.ask("Short", asked["conversation_id"], settings=SETTINGS)

    run(scenario())


def test_what_has_no_room_even_in_the_summary_is_named(tmp_path: Path) -> None:
    """An early turn of a larger model's time, far too long for this one."""

    async def scenario() -> None:
        async with opened(
            tmp_path, info=make_model_info(num_blocks=999, max_model_len=4000)
        ) as desk:
            asked = await desk.answered(words(900, "old-"), "Fine.", settings=SETTINGS)
            await desk.answered(words(60, "new-"), "Good.", asked["conversation_id"])
            desk.engine.info = small()
            options = {"on_full": OnFull.SUMMARISE, "settings": SETTINGS}
            asking = asyncio.create_task(desk.ask(words(140), asked["conversation_id"], **options))
            await until(lambda: len(desk.engine.streams) == 3)
            assert contents(desk)[1] == words(60, "new-")
            say_all(desk.engine.streams[-1], "Good.")
            await asking
            cut = (await desk.messages(asked))[-2]["cut"]
            assert cut["summary"] == "(2 older messages are not part of this summary.) Good."
            assert cut["num_left_out"] == 4

    run(scenario())


def test_answering_again_may_cut_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await grown(desk)
            longer = ChatSettings(system_prompt=words(150, "s"), max_tokens=512)
            last = await desk.last(asked)
            with pytest.raises(ContextFullError) as caught:
                await desk.conversations.regenerate("alice", last["message_id"], settings=longer)
            assert caught.value.num_left_out > 0
            again = await desk.conversations.regenerate(
                "alice", last["message_id"], settings=longer, on_full=OnFull.DROP
            )
            assert contents(desk)[0] == words(150, "s")
            assert contents(desk)[-1] == words(20, "q3-")
            say_all(desk.engine.streams[-1], "Yes.")
            assert (await desk.end_of(again))["text"] == "Yes."
            assert (await desk.messages(asked))[-2]["cut"]["num_left_out"] > 0

    run(scenario())


def test_an_answer_that_cannot_go_on_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            asked = await desk.answered("Hello", words(300))
            with pytest.raises(ContextFullError) as caught:
                await desk.conversations.continue_answer(
                    "alice", asked["answer_id"], settings=SETTINGS
                )
            assert caught.value.choices == ()
            assert (await desk.last(asked))["state"] == "done"

    run(scenario())


def test_counting_what_a_question_would_cost(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, info=small()) as desk:
            count = desk.conversations.count
            asked = await grown(desk)
            use = await count("alice", conversation_id=None, text="a b c", settings=SETTINGS)
            assert use == {"used": 7, "max": 320}
            use = await count(
                "alice",
                conversation_id=asked["conversation_id"],
                text="a b c",
                settings=SETTINGS,
            )
            assert use == {"used": 127, "max": 320}
            with pytest.raises(ChatError) as caught:
                await count(
                    "bob",
                    conversation_id=asked["conversation_id"],
                    text="",
                    settings=SETTINGS,
                )
            assert caught.value.code == "not_found"

    run(scenario())
