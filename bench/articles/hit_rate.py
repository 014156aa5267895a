"""Article B: the hit rate of the prefix cache over time, read from the engine's counters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from bench.articles.machine import MachineWatch
from bench.articles.runs import Hearth
from bench.articles.scale import Scale
from bench.articles.section import Section
from bench.turns import Conversation
from bench.workload import ChatWorkload
from engine import EngineStats, SamplingParams

_MAX_ROWS = 12
_MESSAGE_WORDS = 60


class Reading(NamedTuple):
    """Since the start of the run."""

    time_s: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int

    @property
    def share(self) -> float:
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0


def measure(hearth: Hearth, scale: Scale) -> Section:
    workload = _workload(scale, hearth.info.max_model_len)
    start = hearth.engine.stats()
    assert start is not None
    with MachineWatch(hearth.engine.stats) as watch:
        asyncio.run(_chat(hearth, workload))
    end = hearth.engine.stats()
    seen = [sample.engine for sample in watch.samples] + [end]
    readings = _thinned([_since(start, stats) for stats in seen if stats is not None])
    last = readings[-1]
    return Section(
        f"Article B, hit rate over time: {workload.users} chats of {workload.turns} turns",
        ["s", "prompt tokens", "from the cache", "hit rate", "written"],
        [_row(reading) for reading in readings],
        [
            "The article's script prints hits and misses of /metrics. Hearth counts tokens, not",
            "blocks; the rate rises with the turns, since each brings one message and its history.",
        ],
        {
            "hit_rate": round(last.share, 4),
            "prompt_tokens": last.num_prompt_tokens,
            "over_time": [[round(r.time_s, 1), round(r.share, 4)] for r in readings],
        },
    )


def _row(reading: Reading) -> list[str | int]:
    return [f"{reading.time_s:.1f}", reading.num_prompt_tokens, reading.num_cached_tokens,
            f"{reading.share:.0%}", reading.num_output_tokens]  # fmt: skip


def _workload(scale: Scale, max_model_len: int) -> ChatWorkload:
    """As many turns as the context holds, if a word is two tokens at most."""
    turn_tokens = 2 * _MESSAGE_WORDS + scale.turn_tokens
    room = (max_model_len - 2 * ChatWorkload().system_words) // turn_tokens
    return ChatWorkload(
        users=scale.num_chats,
        turns=max(1, min(scale.num_chat_turns, room)),
        message_words=_MESSAGE_WORDS,
        max_tokens=scale.turn_tokens,
        seed=scale.seed,
    )


async def _chat(hearth: Hearth, workload: ChatWorkload) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=workload.max_tokens, ignore_eos=True)

    async def hold(user: int) -> None:
        conversation = Conversation(
            hearth.engine,
            sampling,
            owner=f"chat-{user}",
            system_prompt=workload.system_prompt,
        )
        for message in workload.messages_of(user):
            await conversation.play(message)

    await asyncio.gather(*(hold(user) for user in range(workload.users)))


def _since(start: EngineStats, stats: EngineStats) -> Reading:
    return Reading(
        max(0.0, stats.time_s - start.time_s),
        stats.num_prompt_tokens_total - start.num_prompt_tokens_total,
        stats.num_cached_tokens_total - start.num_cached_tokens_total,
        stats.num_output_tokens_total - start.num_output_tokens_total,
    )


def _thinned(readings: Sequence[Reading]) -> list[Reading]:
    """At most a dozen that differ, the last among them."""
    told = [reading for reading in readings if reading.num_prompt_tokens]
    distinct = [
        reading
        for index, reading in enumerate(told)
        if index == 0 or reading[1:] != told[index - 1][1:]
    ]
    step = max(1, -(-len(distinct) // _MAX_ROWS))
    return distinct[::-step][::-1]
