"""Comparing our greedy replies with those of `model.generate`, near ties allowed and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from engine.model.transposed_linear import TransposedLinear

CLOSE = 1e-3


@contextmanager
def plain_model(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Transformers' own attention and PyTorch's own linear layers, for as long as the block."""
    ours = model.config._attn_implementation
    model.set_attn_implementation("eager")
    linears = [module for module in model.modules() if isinstance(module, TransposedLinear)]
    for linear in linears:
        linear.forward = partial(functional.linear, weight=linear.weight, bias=linear.bias)
    try:
        yield model
    finally:
        model.set_attn_implementation(ours)
        for linear in linears:
            del linear.forward


def generated(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    with plain_model(model), torch.inference_mode():
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
        with plain_model(model), torch.inference_mode():
            return model(torch.tensor([token_ids])).logits[0, -1]

    return logits_after
