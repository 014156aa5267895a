"""Conversations of a tiny real model that do not fit the device: replies equal a cold run's."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from engine.in_process import InProcessEngine
from tests.runner_driver import RunnerDriver, make_factory
from tests.tiered_engine import BLOCK_SIZE, NUM_WORDS, answer_of, ask, tiny_engine
from tests.tiny_models import tiny_model

NUM_TOKENS = 8  # as `ask` wants by default


@cache
def _model() -> object:
    return tiny_model("llama", seed=0)


@cache
def cold(prompt: tuple[int, ...], num_tokens: int = NUM_TOKENS) -> tuple[int, ...]:
    """The same request, alone, on storage that nobody has used."""
    factory = make_factory(
        _model(),  # type: ignore[arg-type]
        scheme="int8",
        vocab_size=NUM_WORDS + 6,
        block_size=BLOCK_SIZE,
    )
    return tuple(RunnerDriver(factory, num_blocks=40).reply(prompt, num_tokens))


def words(rng: random.Random, num_words: int) -> list[int]:
    return [rng.randrange(NUM_WORDS) for _ in range(num_words)]


@pytest.fixture(scope="module", params=["host", "host and disk"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InProcessEngine]:
    settings = {}
    if request.param == "host and disk":
        settings = {"disk_cache": tmp_path_factory.mktemp("disk"), "swap_space": 0.0005}
    with tiny_engine(**settings) as engine:
        yield engine


def num_common(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def test_br_01_forty_conversations_on_a_pool_for_three(engine: InProcessEngine) -> None:
    rng = random.Random(1)
    chats = [[number, 3 * number, *words(rng, 70)] for number in range(40)]  # the canary first
    known: list[list[int]] = []
    turn = 0
    stats = engine.stats()
    assert stats is not None
    before = stats.num_restored_blocks_total
    for _ in range(4):
        order = rng.sample(range(40), 40)
        while order:
            together = [order.pop() for _ in range(min(rng.randint(2, 4), len(order)))]
            asked = [(chat, tuple(chats[chat])) for chat in together]
            if rng.random() < 0.3:
                asked.append((-1, (2, 2, *words(rng, 2))))
            streams = []
            for _, prompt in asked:
                turn += 1
                streams.append(ask(engine, f"{id(engine)} {turn}", prompt))
            for (chat, prompt), stream in zip(asked, streams, strict=True):
                reply = answer_of(stream)
                assert reply.token_ids == cold(prompt)
                seen = [*known, *(other for other_chat, other in asked if other_chat != chat)]
                most = max((num_common(prompt, text) for text in seen), default=0)
                assert reply.usage.num_cached_tokens <= most
                known.append([*prompt, *reply.token_ids])
                if chat >= 0:
                    chats[chat] = [*prompt, *reply.token_ids, *words(rng, 3)]
    stats = engine.stats()
    assert stats is not None
    assert stats.num_restored_blocks_total - before > 100 * 8


def test_br_03_cancel_and_retry_over_a_shared_prefix_with_tiers(engine: InProcessEngine) -> None:
    rng = random.Random(3)
    for round_number in range(6):
        shared = words(rng, 64)
        prompts = {name: (*shared, *words(rng, 10)) for name in "abcdef"}
        name_of = f"{id(engine)} br3 {round_number} "
        streams = {name: ask(engine, f"{name_of}{name}", prompts[name]) for name in "abcd"}
        for name in "ab":
            time.sleep(rng.random() * 0.02)  # cancelled somewhere on its way
            streams[name].close()
        for name in "abef":
            again = ask(engine, f"{name_of}{name} again", prompts[name])
            assert answer_of(again).token_ids == cold(prompts[name])
        for name in "cd":
            assert answer_of(streams[name]).token_ids == cold(prompts[name])
    stats = engine.stats()
    assert stats is not None
    assert stats.num_blocks_in_use == 0


def test_br_04_abort_during_prefill_then_others_then_again(engine: InProcessEngine) -> None:
    rng = random.Random(4)
    for round_number in range(5):
        document = tuple(words(rng, 200))
        name_of = f"{id(engine)} br4 {round_number} "
        stream = ask(engine, f"{name_of}document", document)
        time.sleep(rng.random() * 0.02)
        stream.close()
        others = [ask(engine, f"{name_of}{n}", words(rng, 40), 2) for n in range(20)]
        for other in others:
            list(other)
        again = ask(engine, f"{name_of}again", document)
        assert answer_of(again).token_ids == cold(document)


def test_24_conversations_on_a_pool_for_4_say_what_they_would_say_cold() -> None:
    rng = random.Random(5)
    chats = [(number, *words(rng, 60)) for number in range(24)]
    possible = served = 0
    with tiny_engine(num_gpu_blocks_override=4 * 11) as engine:
        for turn in range(2):
            for number, chat in enumerate(chats):
                reply = answer_of(ask(engine, f"{turn} {number}", chat))
                assert reply.token_ids == cold(chat)
                served += reply.usage.num_cached_tokens
                if turn:
                    possible += len(chat) - 4  # all but the last sampled token and the three new
                chats[number] = (*chat, *reply.token_ids, *words(rng, 3))
    assert served >= 0.9 * possible
