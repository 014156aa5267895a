"""A plan as people read it, and as programs do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence

from engine.model.outline import ModelOutline
from engine.planner.advice import advice_for
from engine.planner.plan import GIB, MemoryPlan

_KIB = 1024
_MIB = 1024**2
_GIGABYTE = 1_000_000_000
_BYTES_OF_TYPE = {"float32": 4, "bfloat16": 2, "float16": 2}


def plan_text(plan: MemoryPlan) -> str:
    return "\n".join([*_model_lines(plan.outline), "", *_memory_lines(plan), "", *_kv_lines(plan),
                      "", *advice_for(plan)])  # fmt: skip


def plan_json(plan: MemoryPlan) -> str:
    """Everything in bytes and tokens; the same names as in MemoryPlan."""
    described = dataclasses.asdict(plan)
    described["outline"]["weights_bytes"] = plan.outline.weights_bytes
    described["advice"] = advice_for(plan)
    return json.dumps(described)


def _model_lines(outline: ModelOutline) -> Iterator[str]:
    active = outline.num_active_parameters
    parameters = f"{outline.num_parameters / 1e9:.2f} billion parameters"
    if active is None:
        parameters += ", of which a token uses some (how many experts, the configuration hides)"
    elif active != outline.num_parameters:
        parameters += f", {active / 1e9:.2f} of them used for a token"
    yield f"{outline.name}: {outline.architecture}, {parameters}"
    yield (
        f"{outline.num_layers} layers, {outline.num_attention_heads} query heads on "
        f"{outline.num_kv_heads} KV heads of {outline.head_dim}, vocabulary "
        f"{outline.vocab_size:,}"
    )
    context = f"context {outline.max_model_len:,} tokens"
    if outline.trained_model_len > outline.max_model_len:
        context += f" of the {outline.trained_model_len:,} it was made for"
    if outline.sliding_window is not None:
        context += (
            f"; a sliding window of {outline.sliding_window:,} is masked, its blocks are kept"
        )
    yield context
    yield "weights: " + ", ".join(
        f"{outline.num_parameters * size / _GIGABYTE:.1f} GB in {name}"
        for name, size in _BYTES_OF_TYPE.items()
    )


def _memory_lines(plan: MemoryPlan) -> Iterator[str]:
    wishes = plan.wishes
    rows = [
        (f"{wishes.gpu_memory_utilization:g} of {wishes.gpu_bytes / GIB:g} GiB", plan.usable_bytes),
        (f"weights in {plan.outline.dtype}", plan.outline.weights_bytes),
        (f"work space of {wishes.max_num_batched_tokens:,} tokens (an assumption: activations and "
         "logits, and 0.5)", plan.work_space_bytes),
        ("left for KV", plan.pool_bytes),
    ]  # fmt: skip
    yield from _table([[text, f"{size / GIB:.2f} GiB"] for text, size in rows])


def _kv_lines(plan: MemoryPlan) -> Iterator[str]:
    wished = f"{plan.wishes.concurrency} x {plan.context:,} need"
    header = ["KV format", "a token", f"{plan.context:,} tokens", "fit beside each other",
              "tokens in all", wished, ""]  # fmt: skip
    rows = [
        [
            other.name,
            f"{other.bytes_per_token / _KIB:.1f} KiB",
            f"{other.bytes_per_conversation / _MIB:,.0f} MiB",
            f"{other.num_conversations}",
            f"{other.num_tokens:,}",
            f"{other.needed_bytes / GIB:.1f} GiB",
            "fits" if other.fits else "too much",
        ]
        for other in plan.formats
    ]
    yield from _table([header, *rows])


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()
