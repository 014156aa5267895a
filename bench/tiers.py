"""Bringing a conversation's KV back from host memory and from disk, against computing it again.

    python -m bench.tiers

Each round asks one long prompt again after other chats have pushed its blocks out of the
device: once where they went to host memory, once after a restart of the engine, from disk, and on
an engine that keeps nothing. Measured is the time to the first token of a prompt whose last
tokens alone are new.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.report import median, print_json, print_table
from engine import (
    Engine,
    EngineConfig,
    EngineState,
    GenerationRequest,
    SamplingParams,
    Usage,
    create_engine,
)

_NUM_NEW_TOKENS = 8
_FIRST_TOKEN_ID = 1000


class First(NamedTuple):
    """The first token of an answer, and what it took."""

    ttft_s: float
    token_id: int
    usage: Usage
    num_below: int  # prompt tokens that came from host memory or disk


class Bench:
    def __init__(self, num_tokens: int, disk: Path, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._disk = disk
        self._num_asked = 0
        self.num_tokens = num_tokens
        self.prompt = self._text(num_tokens)

    def config(self, *, has_tiers: bool) -> EngineConfig:
        """A pool for one such prompt and a bit."""
        num_blocks = self.num_tokens // 16 + 32
        return EngineConfig(
            dtype="float32",
            max_model_len=self.num_tokens + 64,
            num_gpu_blocks_override=num_blocks,
            swap_space=1.0 if has_tiers else 0.0,
            disk_cache=self._disk if has_tiers else None,
            enable_prefix_caching=has_tiers,
        )

    def again(self, engine: Engine) -> First:
        """The prompt with a new end."""
        return self._ask(engine, (*self.prompt, *self._text(_NUM_NEW_TOKENS)))

    def learn(self, engine: Engine) -> None:
        self._ask(engine, self.prompt)

    def evict(self, engine: Engine) -> None:
        """Other chats, until nothing of the prompt can be left in the device's pool."""
        for _ in range(2):
            self._ask(engine, self._text(self.num_tokens))

    def _text(self, num_tokens: int) -> tuple[int, ...]:
        return tuple(_FIRST_TOKEN_ID + self._rng.randrange(20_000) for _ in range(num_tokens))

    def _ask(self, engine: Engine, prompt: Sequence[int]) -> First:
        self._num_asked += 1
        sampling = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
        request = GenerationRequest(
            request_id=f"bench-{self._num_asked}",
            prompt_token_ids=tuple(prompt),
            sampling=sampling,
        )
        last = list(engine.submit(request))[-1]
        assert last.usage is not None, last.error
        assert last.timings is not None
        assert last.timings.ttft_s is not None
        assert last.trace is not None
        num_below = last.trace.num_host_tokens + last.trace.num_disk_tokens
        return First(last.timings.ttft_s, last.token_ids[0], last.usage, num_below)


def _started(config: EngineConfig) -> Engine:
    engine = create_engine(config)
    engine.start()
    while engine.status().state is EngineState.LOADING:
        time.sleep(0.05)
    if engine.status().state is not EngineState.READY:
        raise SystemExit(engine.status().message)
    return engine


def measure(num_tokens: int, num_rounds: int, start: Callable[[EngineConfig], Engine]) -> None:
    with tempfile.TemporaryDirectory(prefix="hearth-bench-") as folder:
        bench = Bench(num_tokens, Path(folder))
        kept = bench.config(has_tiers=True)
        host: list[First] = []
        disk: list[First] = []
        cold: list[First] = []
        nothing = start(bench.config(has_tiers=False))
        engine = start(kept)
        bench.learn(engine)
        for _ in range(num_rounds):
            bench.evict(engine)
            host.append(bench.again(engine))
            engine.stop()
            engine = start(kept)
            disk.append(bench.again(engine))
            cold.append(bench.again(nothing))
        for running in (engine, nothing):
            running.stop()
    _report(num_tokens, host, disk, cold)


def _report(
    num_tokens: int, host: Sequence[First], disk: Sequence[First], cold: Sequence[First]
) -> None:
    kinds = {"host memory": host, "disk": disk, "computed again": cold}
    seconds = {name: median([first.ttft_s for first in firsts]) for name, firsts in kinds.items()}
    rows = [
        [
            name,
            firsts[-1].usage.num_cached_tokens,
            firsts[-1].num_below,
            f"{seconds[name]:.3f}",
            f"{seconds['computed again'] / seconds[name]:.1f}",
        ]
        for name, firsts in kinds.items()
    ]
    print(f"a prompt of {num_tokens} tokens and {_NUM_NEW_TOKENS} new ones; median of {len(host)}")
    print_table(["from", "cached", "from below", "first token, s", "times faster"], rows)
    print_json(
        {
            "num_tokens": num_tokens,
            "host_s": seconds["host memory"],
            "disk_s": seconds["disk"],
            "computed_s": seconds["computed again"],
            "host_factor": seconds["computed again"] / seconds["host memory"],
            "disk_factor": seconds["computed again"] / seconds["disk"],
        }
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    measure(options.tokens, options.rounds, _started)


if __name__ == "__main__":
    main()
