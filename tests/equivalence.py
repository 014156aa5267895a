"""Comparing our greedy replies with those of `model.generate`, near ties allowed and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

CLOSE = 1e-3


@contextmanager
def plain_attention(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    ours = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield model
    finally:
        model.set_attn_implementation(ours)


def generated(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    with plain_attention(model), torch.inference_mode():
        output = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=0,
        )
    return output[0, len(prompt) :].tolist()


def count_close_calls(
    logits_after: Callable[[Sequence[int]], torch.Tensor],
    prompt: Sequence[int],
    ours: list[int],
    theirs: list[int],
) -> int:
    """0 for equal replies, 1 where they part at a near tie; anything else fails."""
    if ours == theirs:
        return 0
    parted = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    strongest = logits_after([*prompt, *theirs[:parted]]).topk(2).values
    gap = float(strongest[0] - strongest[1])
    assert gap <= CLOSE, f"token {parted}: {ours[parted]}, not {theirs[parted]} (gap {gap:.2g})"
    return 1


def plain_logits(model: PreTrainedModel) -> Callable[[Sequence[int]], torch.Tensor]:
    def logits_after(token_ids: Sequence[int]) -> torch.Tensor:
        with plain_attention(model), torch.inference_mode():
            return model(torch.tensor([token_ids])).logits[0, -1]

    return logits_after
