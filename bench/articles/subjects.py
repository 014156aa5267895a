"""Article B: eight people ask eight different things at the same moment."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.articles.machine import MachineUse, MachineWatch
from bench.articles.runs import Hearth, Prompts, Run
from bench.articles.scale import Scale
from bench.articles.section import Section, ratio
from bench.turns import Conversation
from engine import SamplingParams

if TYPE_CHECKING:
    from bench.articles.baseline import SequentialModel

SUBJECTS = (
    "Write a poem about the first snow.",
    "Explain quantum computing to a beginner.",
    "Write quicksort in Python and explain each step.",
    "Sketch the plot of a novel that plays on Mars.",
    "Explain gradient descent and why it works.",
    "Write an advertisement for a smart watch.",
    "Explain how a blockchain works.",
    "Write a letter of application for a software engineer.",
)
_NUM_BEFORE = 2
_PROMPT_TOKENS = 24  # about what such a question takes


class Together(NamedTuple):
    wall_s: float
    conversations: tuple[Conversation, ...]
    machine: MachineUse


def before(model: SequentialModel, scale: Scale) -> Run:
    prompts = Prompts(model.vocab_size, scale.seed + 4).make(_NUM_BEFORE, _PROMPT_TOKENS)
    return model.answer(prompts, scale.subject_tokens)


def measure(hearth: Hearth, scale: Scale, earlier: Run) -> Section:
    together = asyncio.run(_ask_all(hearth, scale))
    num_tokens = len(SUBJECTS) * scale.subject_tokens
    rate = num_tokens / together.wall_s
    before_s = num_tokens / earlier.tokens_per_s
    ttfts = sorted(conversation.turns[0].ttft_s for conversation in together.conversations)
    rows = [
        ["generate, in turn", f"{before_s:.1f}", f"{earlier.tokens_per_s:.1f}", "", "-",
         earlier.machine.utilization],
        ["Hearth", f"{together.wall_s:.1f}", f"{rate:.1f}", ratio(rate, earlier.tokens_per_s),
         f"{ttfts[-1]:.2f}", together.machine.utilization],
    ]  # fmt: skip
    return Section(
        f"Article B, {len(SUBJECTS)} prompts at once, {scale.subject_tokens} tokens each",
        ["", "all s", "tokens/s", "factor", "longest TTFT s", "busy"],
        rows,
        [
            "The article gives no figures for it. The row of `generate` is reckoned from "
            f"{_NUM_BEFORE} of its answers.",
        ],
        {
            "before_tokens_per_s": round(earlier.tokens_per_s, 2),
            "tokens_per_s": round(rate, 2),
            "factor": round(rate / earlier.tokens_per_s, 2),
        },
    )


async def _ask_all(hearth: Hearth, scale: Scale) -> Together:
    sampling = SamplingParams(temperature=0.0, max_tokens=scale.subject_tokens, ignore_eos=True)
    conversations = tuple(
        Conversation(hearth.engine, sampling, owner=f"subject-{number}")
        for number in range(len(SUBJECTS))
    )
    start = time.perf_counter()
    with MachineWatch(hearth.engine.stats) as watch:
        await asyncio.gather(
            *(
                conversation.play(subject)
                for conversation, subject in zip(conversations, SUBJECTS, strict=True)
            )
        )
        wall_s = time.perf_counter() - start
    return Together(wall_s, conversations, watch.use)
