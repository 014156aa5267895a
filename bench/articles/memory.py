"""Both articles' memory planners, beside Hearth's own."""

from __future__ import annotations

from bench.articles.scale import Scale
from bench.articles.section import Section
from engine.model.outline import ModelOutline
from engine.planner.plan import GIB, MemoryWishes, plan_memory

_CONTEXTS = (4096, 16_384, 65_536, 131_072)
_SHARE_FOR_KV = 0.6  # of the card, in article B
_BYTES_OF_BFLOAT16 = 2


def measure(scale: Scale) -> Section:
    from engine.model.outline_reader import read_outline  # brings torch along

    outline = read_outline(scale.engine_config())
    contexts = [length for length in _CONTEXTS if length <= outline.max_model_len]
    formats = tuple(outline.kv_bytes_per_token)
    rows = []
    counts: dict[str, dict[str, int]] = {}
    for context in contexts or [outline.max_model_len]:
        wishes = MemoryWishes(gpu_bytes=int(scale.gpu_gib * GIB), context=context)
        plan = plan_memory(outline, wishes)
        counts[str(context)] = {other.name: other.num_conversations for other in plan.formats}
        by_article = _article_bytes(outline, context)
        rows.append(
            [f"{context:,}", f"{by_article / GIB:.2f} GiB",
             int(_SHARE_FOR_KV * scale.gpu_gib * GIB / by_article),
             *(f"{other.bytes_per_conversation / GIB:.2f} GiB / {other.num_conversations}"
               for other in plan.formats)]
        )  # fmt: skip
    return Section(
        f"Both articles, memory: a conversation and how many fit on {scale.gpu_gib:g} GiB",
        ["tokens", "B's formula", "in 60 %", *formats],
        rows,
        [
            "B's formula, 2 x layers x hidden x 2 bytes, is right where every query head has KV of",
            f"its own; here {outline.num_attention_heads} share {outline.num_kv_heads} KV heads of "
            f"{outline.head_dim}. A's formula does the same with a hidden",
            "size of 2560 and says 3.2 GB for 4,096 tokens of Phi-mini-MoE, which takes 0.5 GiB.",
        ],
        {"conversations": counts, "kv_bytes_per_token": dict(outline.kv_bytes_per_token)},
    )


def _article_bytes(outline: ModelOutline, context: int) -> int:
    return 2 * outline.num_layers * outline.hidden_size * _BYTES_OF_BFLOAT16 * context
