"""Article A: which number of requests at once suits which input length."""

from __future__ import annotations

from bench.articles.runs import Hearth, Prompts
from bench.articles.scale import Scale
from bench.articles.section import Section

_BATCH_TOKENS = 4096  # the article's limit for one batch
_MAX_REPLY_TOKENS = 32


def measure(hearth: Hearth, scale: Scale) -> Section:
    prompts = Prompts(hearth.info.vocab_size, scale.seed + 1)
    reply_tokens = min(scale.reply_tokens, _MAX_REPLY_TOKENS)
    rows = []
    best_of: dict[str, int] = {}
    for length in scale.input_lengths:
        if length + reply_tokens > hearth.info.max_model_len:
            continue
        rates: dict[int, float] = {}
        for size in scale.batch_sizes:
            total_tokens = size * (length + reply_tokens)
            if total_tokens > hearth.info.num_blocks * hearth.info.block_size:
                break  # they would wait for each other's blocks
            run = hearth.answer(prompts.make(size, length), reply_tokens)
            rates[size] = size * (length + reply_tokens) / run.wall_s
        best = max(rates, key=lambda size: rates[size])
        best_of[str(length)] = best
        rows.append(
            [length, max(1, _BATCH_TOKENS // length), best,
             *(f"{rates[size]:.0f}" if size in rates else "-" for size in scale.batch_sizes)]
        )  # fmt: skip
    return Section(
        f"Article A, batch size by input length: tokens/s in and out, {reply_tokens} answered",
        ["input", "its batch", "our best", *(f"{size} at once" for size in scale.batch_sizes)],
        rows,
        [
            "The article sorts requests by length and packs a batch of at most 4,096 tokens,",
            "its batch here. Hearth needs no such table: a step takes what its token budget holds.",
        ],
        {"best_batch_by_input_length": best_of},
    )
