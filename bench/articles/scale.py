"""How large the experiments are: as in the articles, or small enough for two cores."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from engine import BUNDLED_MODEL, EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Lengths in tokens. The defaults are the articles' own, where they name a number."""

    model: str = BUNDLED_MODEL
    kv_cache_dtype: str = "auto"
    gpu_gib: float = 24.0
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    prompt_tokens: int = 128
    reply_tokens: int = 200
    input_lengths: tuple[int, ...] = (64, 256, 1024, 3072)
    block_sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    num_turns: int = 20
    turn_tokens: int = 200
    long_tokens: int = 10_000
    subject_tokens: int = 500
    num_chats: int = 8  # of the hit rate
    num_chat_turns: int = 6
    seed: int = 11

    def engine_config(self, **settings: object) -> EngineConfig:
        return EngineConfig(
            model=self.model,
            kv_cache_dtype=self.kv_cache_dtype,
            **settings,  # type: ignore[arg-type]
        )

    def shortened(self, max_tokens: int) -> Scale:
        """No reply longer than this."""
        names = ("reply_tokens", "turn_tokens", "long_tokens", "subject_tokens")
        return replace(self, **{name: min(getattr(self, name), max_tokens) for name in names})


QUICK = Scale(
    batch_sizes=(1, 4, 16),
    reply_tokens=16,
    input_lengths=(64, 512),
    block_sizes=(8, 16, 64, 512),
    num_turns=8,
    turn_tokens=16,
    long_tokens=128,
    subject_tokens=24,
    num_chats=4,
    num_chat_turns=4,
)


def scale_of(options: argparse.Namespace) -> Scale:
    scale = replace(
        QUICK if options.quick else Scale(),
        model=options.model,
        kv_cache_dtype=options.kv_cache_dtype,
        gpu_gib=options.gpu_gib,
    )
    return scale if options.tokens is None else scale.shortened(options.tokens)
