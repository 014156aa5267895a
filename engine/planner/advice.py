"""What to change when a plan does not fit, each with its number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.planner.plan import GIB, FormatPlan, MemoryPlan

_HIGHEST_UTILIZATION = 0.95


def advice_for(plan: MemoryPlan) -> tuple[str, ...]:
    """Sentences, the cheapest change first; one that says what is to spare, where all fits."""
    if plan.pool_bytes == 0:
        return tuple(_about_weights(plan))
    if plan.chosen.fits:
        spare_bytes = plan.pool_bytes - plan.chosen.needed_bytes
        return (
            f"It fits, with {spare_bytes / GIB:.1f} GiB to spare: "
            f"{_conversations(plan.chosen.num_conversations, plan)} in {plan.chosen.name}.",
        )
    return tuple(_about_kv(plan))


def _about_weights(plan: MemoryPlan) -> Iterator[str]:
    outline = plan.outline
    taken_bytes = outline.weights_bytes + plan.work_space_bytes
    held_bytes = taken_bytes + plan.chosen.bytes_per_conversation
    card_gib = math.ceil(held_bytes / plan.wishes.gpu_memory_utilization / GIB)
    yield (
        f"The weights do not fit: with work space they take {taken_bytes / GIB:.1f} GiB of "
        f"{plan.usable_bytes / GIB:.1f}. A card of {card_gib} GiB would hold them and "
        f"{_conversations(1, plan)}."
    )
    if outline.bytes_per_number > 2:
        half_gib = outline.num_parameters * 2 / GIB
        yield f"--dtype bfloat16: the weights take {half_gib:.1f} GiB."
    yield from _about_quantized_weights(plan)
    yield "Or a smaller model."


def _about_kv(plan: MemoryPlan) -> Iterator[str]:
    chosen = plan.chosen
    missing_bytes = chosen.needed_bytes - plan.pool_bytes
    yield (
        f"It does not fit: {_conversations(plan.wishes.concurrency, plan)} need "
        f"{chosen.needed_bytes / GIB:.1f} GiB in {chosen.name}, {missing_bytes / GIB:.1f} more "
        "than is left."
    )
    smaller = [other for other in plan.formats if other.bytes_per_token < chosen.bytes_per_token]
    if smaller:
        yield from _about_smaller_formats(smaller)
    room = _longest_context(plan)
    if room:
        yield f"--max-model-len {room}: that many tokens each fit as they are."
    if chosen.num_conversations:
        yield (
            f"--max-num-seqs {chosen.num_conversations}: so many run at once, the others wait in "
            "the queue."
        )
    if plan.wishes.concurrency > 1 and chosen.num_conversations:
        yield (
            f"--swap-space {-(-missing_bytes // GIB)}: conversations that rest between their turns "
            "wait in host memory."
        )
    gained_bytes = int(plan.wishes.gpu_bytes * _HIGHEST_UTILIZATION) - plan.usable_bytes
    if gained_bytes >= missing_bytes:
        yield f"--gpu-memory-utilization {_HIGHEST_UTILIZATION}: {gained_bytes / GIB:.1f} GiB more."
    yield from _about_quantized_weights(plan)


def _about_smaller_formats(smaller: list[FormatPlan]) -> Iterator[str]:
    """The largest that fits loses the least quality; else the smallest, for what it gains."""
    fitting = [other for other in smaller if other.fits]
    best = max(fitting, key=_size) if fitting else min(smaller, key=_size)
    outcome = "fits" if best.fits else "does not fit either, but comes closer"
    yield f"--kv-cache-dtype {best.name}: {best.needed_bytes / GIB:.1f} GiB, which {outcome}."


def _about_quantized_weights(plan: MemoryPlan) -> Iterator[str]:
    freed_bytes = plan.outline.weights_bytes - plan.outline.num_parameters
    if freed_bytes > 0:
        yield (
            f"Weights in 8 bits would leave {freed_bytes / GIB:.1f} GiB more; this version has no "
            "quantized weights, so choose a model with fewer parameters."
        )


def _longest_context(plan: MemoryPlan) -> int:
    """Tokens for each of the wished conversations, in whole blocks."""
    block_size = plan.wishes.block_size
    num_blocks = plan.chosen.num_tokens // block_size
    return num_blocks // plan.wishes.concurrency * block_size


def _conversations(number: int, plan: MemoryPlan) -> str:
    noun = "conversation" if number == 1 else "conversations"
    return f"{number} {noun} of {plan.context:,} tokens"


def _size(plan: FormatPlan) -> int:
    return plan.bytes_per_token
