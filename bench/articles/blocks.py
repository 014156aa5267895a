"""Article B: block sizes, an engine each."""

from __future__ import annotations

from bench.articles.runs import Hearth, Prompts
from bench.articles.scale import Scale
from bench.articles.section import Section
from bench.engines import running_engine
from bench.report import median

_NUM_PROMPTS = 8


def measure(scale: Scale) -> Section:
    rows = []
    by_size: dict[str, dict[str, float]] = {}
    for size in scale.block_sizes:
        config = scale.engine_config(block_size=size)
        with running_engine(config) as engine:
            figures = _measure_one(Hearth(engine), scale)
        by_size[str(size)] = figures
        rows.append(
            [size, f"{figures['one_tokens_per_s']:.1f}", f"{figures['tokens_per_s']:.1f}",
             f"{figures['cached_share']:.0%}", f"{figures['again_ttft_s']:.3f}"]
        )  # fmt: skip
    return Section(
        f"Article B, block sizes: {scale.prompt_tokens} tokens asked, then the same and one more",
        ["block", "1 at once, tokens/s", f"{_NUM_PROMPTS} at once", "cached", "TTFT again s"],
        rows,
        [
            "The article swept 8, 16, 32 and 64 on one prompt and found 16 best on a 24 GB card.",
            "Hearth keeps the last block of a turn even where it is not full, so large blocks lose",
            "less of what is shared than where whole blocks alone count.",
        ],
        {"by_block_size": by_size},
    )


def _measure_one(hearth: Hearth, scale: Scale) -> dict[str, float]:
    prompts = Prompts(hearth.info.vocab_size, scale.seed + 2)
    one = hearth.answer(prompts.make(1, scale.prompt_tokens), scale.reply_tokens)
    asked = prompts.make(_NUM_PROMPTS, scale.prompt_tokens)
    many = hearth.answer(asked, scale.reply_tokens)
    again = hearth.answer([(*prompt, 1) for prompt in asked], 1)
    num_cached = sum(answer.num_cached_tokens for answer in again.answers)
    return {
        "one_tokens_per_s": round(one.tokens_per_s, 2),
        "tokens_per_s": round(many.tokens_per_s, 2),
        "cached_share": round(num_cached / (_NUM_PROMPTS * (scale.prompt_tokens + 1)), 4),
        "again_ttft_s": round(median([answer.ttft_s for answer in again.answers]), 4),
    }
