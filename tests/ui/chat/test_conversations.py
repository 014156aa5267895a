"""Conversations on the real model: what is cut, continued, and found again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine import EngineConfig, EngineState, GenerationRequest
from engine.in_process import InProcessEngine
from engine.stream import OutputStream
from tests.chat_factories import Desk, opened, until
from ui.chat.room import ContextFullError, OnFull
from ui.chat.settings import ChatSettings

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel

GREEDY = ChatSettings(temperature=0.0, max_tokens=16)
FRENCH = "Always answer in French."


class NotedEngine(InProcessEngine):
    """A real engine that notes what is asked of it."""

    def __init__(self, loaded: LoadedModel, max_model_len: int) -> None:
        small = loaded._replace(info=replace(loaded.info, max_model_len=max_model_len))
        super().__init__(EngineConfig(), lambda config, report: small)
        self.requests: list[GenerationRequest] = []

    def submit(self, request: GenerationRequest) -> OutputStream:
        self.requests.append(request)
        return super().submit(request)


@asynccontextmanager
async def serving(
    directory: Path, loaded: LoadedModel, max_model_len: int = 2048
) -> AsyncIterator[tuple[Desk, NotedEngine]]:
    engine = NotedEngine(loaded, max_model_len)
    engine.start()
    try:
        await until(lambda: engine.status().state is EngineState.READY, 60)
        async with opened(directory, real_engine=engine) as desk:
            yield desk, engine
    finally:
        engine.stop()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 240))


def test_br_07_the_ids_of_a_conversation_survive_a_restart(
    tmp_path: Path, loaded_bundled_model: LoadedModel
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, loaded_bundled_model) as (desk, engine):
            settings = replace(GREEDY, temperature=1.5, seed=3, max_tokens=40)  # odd tokens
            asked = await desk.ask("Write some random words.", settings=settings)
            await desk.end_of(asked, limit_s=60)
            (first,) = engine.requests
        async with serving(tmp_path, loaded_bundled_model) as (desk, engine):
            await desk.ask("And more.", asked["conversation_id"], settings=GREEDY)
            (warm,) = engine.requests
            texts = [message["text"] for message in await desk.messages(asked)]
            kept = desk.store.transcripts("alice", [asked["answer_id"]])
            assert len(kept) == 1
        async with serving(tmp_path / "cold", loaded_bundled_model) as (desk, engine):
            again = await desk.ask("Write some random words.", settings=settings)
            await desk.end_of(again, limit_s=60)
            assert (await desk.last(again))["text"] == texts[1]
            await desk.ask("And more.", again["conversation_id"], settings=GREEDY)
            same = engine.requests[1]
        num_first = len(first.prompt_token_ids)
        assert warm.prompt_token_ids[:num_first] == first.prompt_token_ids
        # exactly what a server that never stopped would send
        assert warm.prompt_token_ids == same.prompt_token_ids

    run(scenario())


def test_br_68_a_long_document_and_a_chat_past_the_limit_on_the_real_model(
    tmp_path: Path, loaded_bundled_model: LoadedModel
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, loaded_bundled_model, 256) as (desk, engine):
            settings = replace(GREEDY, system_prompt=FRENCH)
            document = "The fact is at the start. " + "Nothing of note happens here. " * 60
            with pytest.raises(ContextFullError) as caught:
                await desk.ask(document + "The end.", settings=settings)
            assert caught.value.used > 256
            assert caught.value.choices == ()
            assert engine.requests == []
            asked = await desk.ask("Name a colour.", settings=settings)
            await desk.end_of(asked, limit_s=60)
            num_refused = 0
            for number in range(6):
                question = f"Question {number}: tell me more about it, please, in a few words."
                conversation_id = asked["conversation_id"]
                try:
                    await desk.ask(question, conversation_id, settings=settings)
                except ContextFullError:
                    num_refused += 1
                    await desk.ask(
                        question, conversation_id, settings=settings, on_full=OnFull.DROP
                    )
                await desk.end_of(asked, limit_s=60)
                sent = loaded_bundled_model.tokenizer.decode(engine.requests[-1].prompt_token_ids)
                assert sent.startswith(f"<|im_start|>system\n{FRENCH}<|im_end|>\n")
                assert sent.endswith(f"{question}<|im_end|>\n<|im_start|>assistant\n")
                assert len(engine.requests[-1].prompt_token_ids) <= 256 - 16
            cuts = [message["cut"] for message in await desk.messages(asked) if message["cut"]]
            assert len(cuts) == num_refused > 0

    run(scenario())


def test_a_summary_by_the_real_model(tmp_path: Path, loaded_bundled_model: LoadedModel) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, loaded_bundled_model, 320) as (desk, engine):
            asked = await desk.ask("My name is Ada and I have a cat.", settings=GREEDY)
            await desk.end_of(asked, limit_s=60)
            question = "What do you know about me? " + "Think about it. " * 40
            conversation_id = asked["conversation_id"]
            for _ in range(2):
                await desk.ask("Tell me about cats, please.", conversation_id, settings=GREEDY)
                await desk.end_of(asked, limit_s=60)
            longer = replace(GREEDY, max_tokens=100)
            with pytest.raises(ContextFullError) as caught:
                await desk.ask(question, conversation_id, settings=longer)
            assert OnFull.SUMMARISE in caught.value.choices
            await desk.ask(question, conversation_id, settings=longer, on_full=OnFull.SUMMARISE)
            await desk.end_of(asked, limit_s=60)
            cut = (await desk.messages(asked))[-2]["cut"]
            assert cut["summary"]
            sent = loaded_bundled_model.tokenizer.decode(engine.requests[-1].prompt_token_ids)
            assert f"Summary of the conversation so far: {cut['summary']}<|im_end|>" in sent
            assert sent.endswith("Think about it. <|im_end|>\n<|im_start|>assistant\n")

    run(scenario())


def test_going_on_with_an_answer_gives_what_one_long_answer_would(
    tmp_path: Path, loaded_bundled_model: LoadedModel
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, loaded_bundled_model) as (desk, _):
            question = "List the days of the week."
            whole = await desk.ask(question, settings=replace(GREEDY, max_tokens=24))
            expected = await desk.end_of(whole, limit_s=60)
            asked = await desk.ask(question, settings=replace(GREEDY, max_tokens=8))
            short = await desk.end_of(asked, limit_s=60)
            assert short["facts"]["finish_reason"] == "length"
            assert expected["text"].startswith(short["text"])
            await desk.conversations.continue_answer("alice", asked["answer_id"], settings=GREEDY)
            answer = await desk.end_of(asked, limit_s=60)
            assert answer["text"] == expected["text"]
            facts = answer["facts"]
            assert facts["num_output_tokens"] == expected["facts"]["num_output_tokens"]
            assert facts["num_prompt_tokens"] == expected["facts"]["num_prompt_tokens"]

    run(scenario())


def test_br_60_a_real_answer_that_is_stopped_is_history_for_the_next(
    tmp_path: Path, loaded_bundled_model: LoadedModel
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, loaded_bundled_model) as (desk, engine):
            settings = replace(GREEDY, max_tokens=400)
            asked = await desk.ask("Tell me a long story.", settings=settings)
            answer = desk.answers.find("alice", asked["conversation_id"])
            await until(lambda: len(answer.text) > 20, 60)
            await desk.conversations.stop("alice", asked["conversation_id"])
            stopped = await desk.end_of(asked)
            assert stopped["state"] == "stopped"
            assert len(stopped["text"]) > 20
            await desk.ask("Go on.", asked["conversation_id"], settings=GREEDY)
            sent = loaded_bundled_model.tokenizer.decode(engine.requests[1].prompt_token_ids)
            assert stopped["text"] in sent
            last = await desk.end_of(asked, limit_s=60)
            num_first = stopped["facts"]["num_prompt_tokens"]
            assert last["facts"]["num_cached_tokens"] >= num_first

    run(scenario())
