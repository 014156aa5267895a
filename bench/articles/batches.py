"""Article A: throughput, latency and memory by the number of requests at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.articles.runs import Hearth, Prompts, Run
from bench.articles.scale import Scale
from bench.articles.section import Section, ratio

if TYPE_CHECKING:
    from bench.articles.baseline import SequentialModel

_NUM_BEFORE = 2  # one after the other, more of them change the rate no more


def before(model: SequentialModel, scale: Scale) -> Run:
    prompts = Prompts(model.vocab_size, scale.seed).make(_NUM_BEFORE, scale.prompt_tokens)
    return model.answer(prompts, scale.reply_tokens)


def measure(hearth: Hearth, scale: Scale, earlier: Run) -> Section:
    prompts = Prompts(hearth.info.vocab_size, scale.seed)
    rows = [
        [f"before: generate, {_NUM_BEFORE} in turn", f"{earlier.tokens_per_s:.1f}", "1.0 x",
         f"{earlier.wall_s / _NUM_BEFORE:.2f}", "-", earlier.machine.memory,
         earlier.machine.utilization]
    ]  # fmt: skip
    rates: dict[int, float] = {}
    for size in scale.batch_sizes:
        run = hearth.answer(prompts.make(size, scale.prompt_tokens), scale.reply_tokens)
        rates[size] = run.tokens_per_s
        rows.append(
            [f"Hearth, {size} at once", f"{run.tokens_per_s:.1f}",
             ratio(run.tokens_per_s, earlier.tokens_per_s), f"{run.latency_p50_s:.2f}",
             f"{run.latency_p95_s:.2f}", run.machine.memory, run.machine.utilization]
        )  # fmt: skip
    best = max(rates.values())
    return Section(
        "Article A, before and after: "
        f"{scale.prompt_tokens} tokens asked, {scale.reply_tokens} answered",
        ["", "tokens/s", "factor", "latency p50 s", "p95 s", "memory", "busy"],
        rows,
        [
            "The article, Phi-mini-MoE on a 24 GB card: largest batch 2 -> 16, 45 -> 240 tokens/s",
            "(5.3 x), 18.7 -> 21.3 GB, GPU 42 -> 89 % busy. It began with batches of 2, we with",
            "one request after the other. Memory is what the processes hold: Hearth reserves its",
            "KV pool at the start, so it does not grow with the batch.",
        ],
        {
            "before_tokens_per_s": round(earlier.tokens_per_s, 2),
            "tokens_per_s_by_batch": {str(size): round(rate, 2) for size, rate in rates.items()},
            "best_factor": round(best / earlier.tokens_per_s, 2),
        },
    )
