from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.chat import ChatRequest, ChatService, ChatStream
from engine.errors import EngineNotReadyError, InvalidParameterError, QueueFullError
from engine.request import FinishReason, RequestOutput
from engine.sampling_params import SamplingParams
from engine.text.chat_template import ChatMessage
from engine.text.formatter import ChatFormatter
from tests.factories import make_model_info
from tests.fakes import IdleEngine, ScriptedEngine
from tests.tokenizer_factories import save_phi3_tokenizer, save_qwen3_tokenizer


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen3_tokenizer(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture
def engine(directory: Path) -> ScriptedEngine:
    return ScriptedEngine(make_model_info(tokenizer_path=str(directory), max_model_len=100_000))


def make_request(*contents: str, owner: str = "ann", continues: bool = False) -> ChatRequest:
    roles = ("user", "assistant")
    return ChatRequest(
        messages=tuple(ChatMessage(roles[i % 2], text) for i, text in enumerate(contents)),
        sampling=SamplingParams(),
        owner=owner,
        user="u1",
        cache_salt="s1",
        continue_final_message=continues,
        timeout_s=9.0,
    )


def delta(text: str, token_ids: tuple[int, ...], **fields: object) -> RequestOutput:
    return RequestOutput(request_id="r", text=text, token_ids=token_ids, **fields)  # type: ignore[arg-type]


async def read(stream: ChatStream) -> str:
    return "".join([output.text async for output in stream])


def test_a_request_reaches_the_engine_as_it_was_asked(
    engine: ScriptedEngine, tokenizer: PreTrainedTokenizerBase
) -> None:
    stream = asyncio.run(ChatService(engine).open(make_request("hello world")))
    (request,) = engine.requests
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello world"}],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert list(request.prompt_token_ids) == list(stream.prompt_token_ids) == expected
    assert (request.user, request.cache_salt, request.timeout_s) == ("u1", "s1", 9.0)
    assert stream.request_id == request.request_id
    assert stream.progress.queue_position == 1


def test_br_07_a_finished_reply_keeps_its_ids_in_the_next_turn(
    engine: ScriptedEngine, tokenizer: PreTrainedTokenizerBase
) -> None:
    async def chat() -> None:
        service = ChatService(engine)
        stream = await service.open(make_request("Hi"))
        last = delta("he", (h, e, end), finish_reason=FinishReason.STOP, num_accepted_tokens=4)
        engine.streams[0].put(delta(" t", (space, t)))
        engine.streams[0].put(last)
        assert await read(stream) == " the"
        await service.open(make_request("Hi", " the", "And?"))
        await service.open(make_request("Hi", " the", "And?", owner="bob"))

    space, t, h, e = tokenizer.convert_tokens_to_ids(["Ġ", "t", "h", "e"])
    end = tokenizer.eos_token_id
    asyncio.run(chat())
    first, ours, theirs = (request.prompt_token_ids for request in engine.requests)
    assert ours[: len(first) + 5] == (*first, space, t, h, e, end)  # this end is the template's
    assert ours[len(first) + 5] != end
    assert theirs != ours  # " the" is one token
    assert tokenizer.decode(theirs) == tokenizer.decode(ours)


async def close_early(stream: ChatStream) -> None:
    await anext(aiter(stream))
    stream.close()


async def leave_early(stream: ChatStream) -> None:
    outputs = aiter(stream)
    await anext(outputs)
    await outputs.aclose()  # type: ignore[attr-defined]


async def be_cancelled(stream: ChatStream) -> None:
    async def read_on() -> None:
        async for _ in stream:
            is_begun.set()

    is_begun = asyncio.Event()
    reading = asyncio.ensure_future(read_on())
    await is_begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("stop_reading", [close_early, leave_early, be_cancelled])
def test_an_answer_that_is_left_early_is_aborted_and_kept(
    engine: ScriptedEngine,
    tokenizer: PreTrainedTokenizerBase,
    stop_reading: Callable[[ChatStream], Awaitable[None]],
) -> None:
    async def chat() -> None:
        service = ChatService(engine)
        stream = await service.open(make_request("Hi"))
        engine.streams[0].put(delta("fo", (f, o)))
        await stop_reading(stream)
        assert stream.request_id in engine.aborted
        await service.open(make_request("Hi", "fo", "And?"))

    f, o = tokenizer.convert_tokens_to_ids(["f", "o"])
    asyncio.run(chat())
    first, following = (request.prompt_token_ids for request in engine.requests)
    assert following[: len(first) + 2] == (*first, f, o)


def test_what_is_read_after_a_stop_counts_too(
    engine: ScriptedEngine, tokenizer: PreTrainedTokenizerBase
) -> None:
    async def chat() -> None:
        service = ChatService(engine)
        stream = await service.open(make_request("Hi"))
        engine.streams[0].put(delta("f", (f,)))
        outputs = aiter(stream)
        await anext(outputs)
        stream.close()
        aborted = delta("o", (o,), finish_reason=FinishReason.ABORT, num_accepted_tokens=2)
        engine.streams[0].put(aborted)
        assert [output async for output in outputs] == [aborted]
        await service.open(make_request("Hi", "fo", "And?"))

    f, o = tokenizer.convert_tokens_to_ids(["f", "o"])
    asyncio.run(chat())
    first, following = (request.prompt_token_ids for request in engine.requests)
    assert following[: len(first) + 2] == (*first, f, o)


def test_br_47_a_continued_answer_shows_its_space(tmp_path: Path) -> None:
    async def chat() -> str:
        stream = await ChatService(engine).open(make_request("Hi", "hello", continues=True))
        world = tokenizer.encode("world and", add_special_tokens=False)
        engine.streams[0].put(delta("world", tuple(world[:1])))
        engine.streams[0].put(delta(" and", tuple(world[1:]), finish_reason=FinishReason.LENGTH))
        return await read(stream)

    directory = save_phi3_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    engine = ScriptedEngine(make_model_info(tokenizer_path=str(directory)))
    assert asyncio.run(chat()) == " world and"
    assert tokenizer.decode(engine.requests[0].prompt_token_ids).endswith("hello")


def test_refusals_come_before_the_queue(engine: ScriptedEngine) -> None:
    with pytest.raises(InvalidParameterError):
        asyncio.run(ChatService(engine).open(make_request()))
    assert engine.requests == []
    with pytest.raises(EngineNotReadyError):
        asyncio.run(ChatService(IdleEngine()).open(make_request("Hi")))


def test_the_prompts_in_preparation_are_bounded(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def chat() -> list[object]:
        service = ChatService(engine)
        opened = (service.open(make_request("a" * 50_000)) for _ in range(3))
        results: list[object] = await asyncio.gather(*opened, return_exceptions=True)
        await service.open(make_request("Hi"))
        return results

    monkeypatch.setattr("engine.chat._MAX_PROMPTS_WAITING", 2)
    results = asyncio.run(chat())
    assert [type(result) for result in results] == [ChatStream, ChatStream, QueueFullError]


def test_one_owner_cannot_take_all_the_places_of_prompts(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def chat() -> list[object]:
        service = ChatService(engine)
        requests = [make_request("a" * 50_000)] * 3
        requests.append(replace(requests[0], owner="somebody else"))
        opened = map(service.open, requests)
        results: list[object] = await asyncio.gather(*opened, return_exceptions=True)
        await service.open(make_request("Hi"))
        return results

    monkeypatch.setattr("engine.chat._MAX_PROMPTS_OF_OWNER", 2)
    results = asyncio.run(chat())
    assert [type(result) for result in results] == [
        ChatStream,
        ChatStream,
        QueueFullError,
        ChatStream,
    ]


def test_br_41_the_event_loop_runs_while_a_prompt_is_encoded(engine: ScriptedEngine) -> None:
    async def chat() -> int:
        opening = asyncio.ensure_future(ChatService(engine).open(make_request("a" * 100_000)))
        num_turns = 0
        while not opening.done():
            await asyncio.sleep(0.001)
            num_turns += 1
        await opening
        return num_turns

    assert asyncio.run(chat()) > 3
    assert len(engine.requests[0].prompt_token_ids) > 1000


def test_br_50_the_bytes_of_a_token(engine: ScriptedEngine, directory: Path) -> None:
    stream = asyncio.run(ChatService(engine).open(make_request("Hi")))
    halves = AutoTokenizer.from_pretrained(directory).encode("é", add_special_tokens=False)
    assert b"".join(map(stream.token_bytes, halves)) == "é".encode()


def test_br_07_a_kept_transcript_survives_a_restart(
    engine: ScriptedEngine, tokenizer: PreTrainedTokenizerBase
) -> None:
    async def chat() -> None:
        stream = await ChatService(engine).open(make_request("Hi"))
        engine.streams[0].put(delta(" t", (space, t)))
        assert stream.transcript is None
        last = delta("he", (h, e), finish_reason=FinishReason.STOP, num_accepted_tokens=4)
        engine.streams[0].put(last)
        assert await read(stream) == " the"
        assert stream.transcript is not None
        after = make_request("Hi", " the", "And?")
        await ChatService(engine).open(replace(after, known_transcripts=(stream.transcript,)))
        await ChatService(engine).open(after)

    space, t, h, e = tokenizer.convert_tokens_to_ids(["Ġ", "t", "h", "e"])
    asyncio.run(chat())
    first, kept, cold = (request.prompt_token_ids for request in engine.requests)
    assert kept[: len(first) + 4] == (*first, space, t, h, e)
    assert cold != kept  # " the" is one token
    assert tokenizer.decode(cold) == tokenizer.decode(kept)


def test_a_transcript_is_of_what_was_said(engine: ScriptedEngine) -> None:
    async def chat() -> None:
        stream = await ChatService(engine).open(make_request("Hi"))
        engine.streams[0].put(delta("", (), finish_reason=FinishReason.ABORT))
        await read(stream)
        assert stream.transcript is None

    asyncio.run(chat())


def test_br_41_the_event_loop_runs_while_a_long_reply_is_remembered(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next turn is not built before it is."""
    order: list[str] = []
    remember, build = ChatFormatter.remember, ChatFormatter.build

    def slowly_remember(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.2)
        order.append("remembered")
        return remember(*arguments, **options)

    def noted_build(*arguments: Any, **options: Any) -> Any:
        order.append("built")
        return build(*arguments, **options)

    monkeypatch.setattr(ChatFormatter, "remember", slowly_remember)
    monkeypatch.setattr(ChatFormatter, "build", noted_build)

    async def chat() -> int:
        service = ChatService(engine)
        stream = await service.open(make_request("Hi"))
        engine.streams[0].put(delta("fo", (1, 2)))
        await anext(aiter(stream))
        stream.close()
        opening = asyncio.ensure_future(service.open(make_request("Hi", "fo", "And?")))
        await asyncio.sleep(0)
        await service.open(make_request("Hi", owner="bob"))  # waits for nothing of Ann's
        num_turns = 0
        while not opening.done():
            await asyncio.sleep(0.001)
            num_turns += 1
        return num_turns

    assert asyncio.run(chat()) > 20
    assert order == ["built", "built", "remembered", "built"]


def test_an_answer_that_cannot_be_remembered_is_still_one(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise ValueError("no such id")

    async def chat() -> str:
        stream = await ChatService(engine).open(make_request("Hi"))
        engine.streams[0].put(delta("fo", (1, 2), finish_reason=FinishReason.STOP))
        text = await read(stream)
        assert stream.transcript is None
        return text

    monkeypatch.setattr(ChatFormatter, "remember", fail)
    assert asyncio.run(chat()) == "fo"
    assert "no such id" in caplog.text


def test_a_prompt_can_be_prepared_and_sent_later(engine: ScriptedEngine) -> None:
    async def chat() -> None:
        service = ChatService(engine)
        prepared = await service.prepare(make_request("Hi"))
        assert engine.requests == []
        stream = service.submit(prepared, max_tokens=7)
        assert len(stream.prompt_token_ids) == prepared.num_tokens
        assert engine.requests[0].sampling.max_tokens == 7

    asyncio.run(chat())
