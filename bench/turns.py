"""One conversation of 20 turns, with KV reuse on and off, turn by turn in the same process.

    python -m bench.turns

Both engines answer each turn before the next begins, in alternating order, so that a noisy machine
weighs on both alike. "Off" computes every prompt from its first token.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from bench.engines import started_engine
from bench.report import print_json, print_table
from bench.workload import ChatWorkload
from engine import (
    ChatMessage,
    ChatRequest,
    ChatService,
    Engine,
    EngineConfig,
    SamplingParams,
)


class Turn(NamedTuple):
    ttft_s: float
    total_s: float
    prompt_tokens: int
    cached_tokens: int


class Conversation:
    """One engine's side: its own history, since replies belong to who gave them."""

    def __init__(
        self,
        engine: Engine,
        sampling: SamplingParams,
        owner: str = "bench",
        system_prompt: str | None = None,
    ) -> None:
        self._chat = ChatService(engine)
        self._sampling = sampling
        self._owner = owner
        self._messages = [] if system_prompt is None else [ChatMessage("system", system_prompt)]
        self.turns: list[Turn] = []

    async def play(self, message: str) -> None:
        self._messages.append(ChatMessage("user", message))
        request = ChatRequest(
            messages=tuple(self._messages),
            sampling=self._sampling,
            owner=self._owner,
            user=self._owner,
        )
        start = time.perf_counter()
        ttft: float | None = None
        text = ""
        usage = None
        async for output in await self._chat.open(request):
            if ttft is None and output.token_ids:
                ttft = time.perf_counter() - start
            text += output.text
            usage = output.usage or usage
        assert ttft is not None
        assert usage is not None
        total = time.perf_counter() - start
        self._messages.append(ChatMessage("assistant", text))
        self.turns.append(Turn(ttft, total, usage.num_prompt_tokens, usage.num_cached_tokens))


async def _play_all(engines: Sequence[Engine], workload: ChatWorkload) -> list[Conversation]:
    sampling = SamplingParams(temperature=0.0, max_tokens=workload.max_tokens, ignore_eos=True)
    conversations = [Conversation(engine, sampling) for engine in engines]
    for number, message in enumerate(workload.messages_of(0)):
        order = conversations if number % 2 == 0 else list(reversed(conversations))
        for conversation in order:
            await conversation.play(message)
    return conversations


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--message-words", type=int, default=142)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--kv-cache-dtype", default="auto")
    options = parser.parse_args(arguments)
    workload = ChatWorkload(
        users=1,
        turns=options.turns,
        message_words=options.message_words,
        max_tokens=options.max_tokens,
    )
    engines = [
        started_engine(
            EngineConfig(
                dtype="float32",
                kv_cache_dtype=options.kv_cache_dtype,
                enable_prefix_caching=reuse,
                kv_cache_memory_bytes=1 << 30,
            )
        )
        for reuse in (True, False)
    ]
    on, off = asyncio.run(_play_all(engines, workload))
    for engine in engines:
        engine.stop()
    _report(on.turns, off.turns)


def _report(on: Sequence[Turn], off: Sequence[Turn]) -> None:
    rows = [
        [number, a.prompt_tokens, a.cached_tokens, f"{a.ttft_s:.3f}", f"{b.ttft_s:.3f}",
         f"{a.total_s:.2f}", f"{b.total_s:.2f}"]
        for number, (a, b) in enumerate(zip(on, off, strict=True), start=1)
    ]  # fmt: skip
    header = ["turn", "prompt", "cached", "TTFT on s", "TTFT off s", "total on s", "total off s"]
    print_table(header, rows)
    total_on, total_off = sum(t.total_s for t in on), sum(t.total_s for t in off)
    print_json(
        {
            "speedup_total": round(total_off / total_on, 2),
            "speedup_last_ttft": round(off[-1].ttft_s / on[-1].ttft_s, 2),
            "total_on_s": round(total_on, 2),
            "total_off_s": round(total_off, 2),
            "last_ttft_on_s": round(on[-1].ttft_s, 4),
            "last_ttft_off_s": round(off[-1].ttft_s, 4),
            "turns": len(on),
        }
    )


if __name__ == "__main__":
    main()
