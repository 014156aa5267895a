"""Article B: one conversation of many turns, every prompt computed anew or its KV reused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench.articles.scale import Scale
from bench.articles.section import Section, ratio
from bench.engines import running_engine
from bench.turns import Conversation, Turn
from bench.workload import ChatWorkload
from engine import SamplingParams

_MESSAGE_WORDS = 30
_RECENT = 5
_MUCH_SLOWER = 1.2


def measure(scale: Scale) -> Section:
    off, on = (_play(scale, enable_prefix_caching=reuse) for reuse in (False, True))
    total_off, total_on = (sum(turn.total_s for turn in turns) for turns in (off, on))
    rows = [
        _row("without reuse", off, total_off),
        _row("with reuse", on, total_on),
        ["", ratio(total_off, total_on), "", "", ratio(off[-1].ttft_s, on[-1].ttft_s), ""],
    ]
    return Section(
        f"Article B, a conversation of {len(on)} turns, {scale.turn_tokens} tokens a reply",
        ["", "all s", "a turn s", "last TTFT s", "last TTFT", "cached"],
        rows,
        [
            "The article, Phi-3-mini on vLLM: 68.4 s -> 24.7 s (2.8 x), 3.42 -> 1.24 s a turn. Its",
            '"without" was a block size of 1, which is a cache still; ours computes every prompt.',
            *_slower(on),
        ],
        {
            "without_reuse_s": round(total_off, 2),
            "with_reuse_s": round(total_on, 2),
            "factor": round(total_off / total_on, 2),
        },
    )


def _play(scale: Scale, *, enable_prefix_caching: bool) -> Sequence[Turn]:
    config = scale.engine_config(enable_prefix_caching=enable_prefix_caching)
    with running_engine(config) as engine:
        room = engine.model_info().max_model_len
        num_turns = min(scale.num_turns, room // (scale.turn_tokens + 2 * _MESSAGE_WORDS))
        workload = ChatWorkload(users=1, turns=num_turns, message_words=_MESSAGE_WORDS)
        sampling = SamplingParams(temperature=0.0, max_tokens=scale.turn_tokens, ignore_eos=True)
        conversation = Conversation(engine, sampling)
        asyncio.run(_talk(conversation, workload))
    return conversation.turns


async def _talk(conversation: Conversation, workload: ChatWorkload) -> None:
    for message in workload.messages_of(0):
        await conversation.play(message)


def _row(name: str, turns: Sequence[Turn], total_s: float) -> list[str]:
    cached = sum(turn.cached_tokens for turn in turns) / sum(turn.prompt_tokens for turn in turns)
    return [name, f"{total_s:.1f}", f"{total_s / len(turns):.2f}", f"{turns[-1].ttft_s:.2f}", "",
            f"{cached:.0%}"]  # fmt: skip


def _slower(turns: Sequence[Turn]) -> list[str]:
    """The article's monitor: the last five against all."""
    times = [turn.total_s for turn in turns]
    recent, mean = sum(times[-_RECENT:]) / len(times[-_RECENT:]), sum(times) / len(times)
    if recent <= _MUCH_SLOWER * mean:
        return []
    return [f"The last {_RECENT} turns took {recent / mean:.1f} times the mean of all."]
