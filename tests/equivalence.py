"""Comparing our greedy replies with those of `model.generate`, near ties allowed and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel

from engine.model.experts import experts_of
from engine.model.rope import LongRope
from engine.model.transposed_linear import TransposedLinear

CLOSE = 1e-3


@contextmanager
def plain_model(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Transformers' own attention and rotary module, PyTorch's own linear layers, for as long as
    the block; of PhiMoE's LongRoPE a plain one, see PhimoeRope."""
    ours = model.config._attn_implementation
    model.set_attn_implementation("eager")
    linears = [module for module in model.modules() if isinstance(module, TransposedLinear)]
    for linear in linears:
        linear.forward = partial(functional.linear, weight=linear.weight, bias=linear.bias)
    ropes = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, LongRope)
    ]
    for parent, name, rope in ropes:
        is_phimoe = model.config.model_type == "phimoe"
        setattr(parent, name, PhimoeRope(model.config) if is_phimoe else rope.stock)
    experts = model.config._experts_implementation
    if experts_of(model):
        model.set_experts_implementation("eager")
    try:
        yield model
    finally:
        if experts_of(model):
            model.set_experts_implementation(experts)
        model.set_attn_implementation(ours)
        for linear in linears:
            del linear.forward
        for parent, name, rope in ropes:
            setattr(parent, name, rope)


class PhimoeRope(nn.Module):
    """PhiMoE's rotary module written out: factors and scale by the length of the one sequence.

    Transformers 5 takes the short factors for any length; up to version 4 it did as here.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.parameters_by_name = config.rope_parameters
        self.head_dim = config.hidden_size // config.num_attention_heads

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rope = self.parameters_by_name
        is_long = int(position_ids.max()) + 1 > rope["original_max_position_embeddings"]
        kind = "long" if is_long else "short"
        exponents = torch.arange(0, self.head_dim, 2) / self.head_dim
        factors = torch.tensor(rope[f"{kind}_factor"])
        angles = position_ids[..., None] / (factors * rope["rope_theta"] ** exponents)
        angles = torch.cat((angles, angles), dim=-1)
        scale = rope[f"{kind}_mscale"]
        return (angles.cos() * scale).to(x.dtype), (angles.sin() * scale).to(x.dtype)


def recomputed(model: PreTrainedModel, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """Greedy, the whole sequence computed anew for each token: the right table by construction."""
    logits_after = plain_logits(model)
    token_ids = list(prompt)
    for _ in range(num_tokens):
        token_ids.append(int(logits_after(token_ids).argmax()))
    return token_ids[len(prompt) :]


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
