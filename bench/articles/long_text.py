"""Article B: one long text, as far as the context goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.articles.runs import Hearth, Prompts, Run
from bench.articles.scale import Scale
from bench.articles.section import Section, ratio

if TYPE_CHECKING:
    from bench.articles.baseline import SequentialModel

_PROMPT_TOKENS = 16
_SAMPLING = {"temperature": 0.7, "top_p": 0.9}  # the article's


def before(model: SequentialModel, scale: Scale) -> Run:
    (prompt,) = Prompts(model.vocab_size, scale.seed + 3).make(1, _PROMPT_TOKENS)
    return model.answer([prompt], _length(scale, model.max_model_len), **_SAMPLING)


def measure(hearth: Hearth, scale: Scale, earlier: Run) -> Section:
    prompts = Prompts(hearth.info.vocab_size, scale.seed + 3).make(1, _PROMPT_TOKENS)
    length = min(earlier.answers[0].num_tokens, _length(scale, hearth.info.max_model_len))
    run = hearth.answer(prompts, length, **_SAMPLING)
    rows = [
        [name, f"{found.wall_s:.1f}", f"{found.tokens_per_s:.1f}", found.machine.memory, factor]
        for name, found, factor in (
            ("generate", earlier, ""),
            ("Hearth", run, ratio(run.tokens_per_s, earlier.tokens_per_s)),
        )
    ]
    claims = [
        "The article: 42.3 s -> 15.7 s for 10,000 tokens, 236 -> 637 tokens/s, 18.2 -> 19.1 GB.",
        "One request alone has nothing to reuse and nobody to share a step with: no cache of",
        "prefixes can make it 2.7 times faster, only other kernels can.",
    ]
    if length < scale.long_tokens:
        claims.append(
            f"This model's context ends after {length:,} of {scale.long_tokens:,} tokens."
        )
    return Section(
        f"Article B, a text of {length:,} tokens at temperature 0.7, top-p 0.9",
        ["", "s", "tokens/s", "memory", "factor"],
        rows,
        claims,
        {
            "num_tokens": length,
            "before_tokens_per_s": round(earlier.tokens_per_s, 2),
            "tokens_per_s": round(run.tokens_per_s, 2),
        },
    )


def _length(scale: Scale, max_model_len: int) -> int:
    return min(scale.long_tokens, max_model_len - _PROMPT_TOKENS)
