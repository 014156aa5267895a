"""LongRoPE, token by token: each gets the rotary table of its own sequence's regime.

Transformers' modules take one table for a whole forward pass, by the largest position in it. Here a
pass holds many sequences, and a chunk of a long one may end early; so the step says for each token
which table its sequence is computed with (engine/rope_regimes.py).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import ModelLoadError

LONG_ROPE_TYPES = frozenset({"longrope", "su"})  # "su" is what the first Phi-3 files call it
_NUM_COMPARED = 64
_LAYOUT_TOLERANCE = 1e-3  # another order of the frequencies differs by a thousand times that


class RopeTables(NamedTuple):
    """The short one, then the long one."""

    inverse_frequencies: torch.Tensor  # float32 [2, rotary_dim / 2]
    scales: torch.Tensor  # float32 [2]: of cosine and sine, so attention scores get the square


class LongRope(nn.Module):
    """Stands for a model's rotary module; what it computes for one sequence is the same.

    Except for PhiMoE past its original length. Transformers 5 scales by `long_mscale` there, but
    asks for the factors without a length and so gets the short ones; up to version 4 it asked with
    the length and got the long ones, which the scale belongs to. So does this module.

    `table_indices` (int64 [1, num_tokens], 0 short, 1 long) is set by the runner before each pass.
    """

    inverse_frequencies: torch.Tensor
    scales: torch.Tensor

    def __init__(self, stock: nn.Module, tables: RopeTables) -> None:
        super().__init__()
        self._stock = [stock]  # in a list: kept to be compared with, not as a part
        self.table_indices = torch.zeros(1, 0, dtype=torch.int64)
        self.register_buffer("inverse_frequencies", tables.inverse_frequencies, persistent=False)
        self.register_buffer("scales", tables.scales, persistent=False)

    @property
    def stock(self) -> nn.Module:
        """The module it stands for."""
        return self._stock[0]

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine [1, num_tokens, rotary_dim], float32 until they get x's type."""
        frequencies = self.inverse_frequencies[self.table_indices]
        scales = self.scales[self.table_indices][..., None]
        angles = position_ids[..., None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return (angles.cos() * scales).to(x.dtype), (angles.sin() * scales).to(x.dtype)


def long_rope_length(config: PreTrainedConfig) -> int | None:
    """Tokens of a sequence that the short table is for; None: all layers have one table."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", rope.get("type")) not in LONG_ROPE_TYPES:
        return None
    # Phi-3 has it beside the rope parameters, and there it counts; others have it in them.
    beside = getattr(config, "original_max_position_embeddings", None)
    inside = rope.get("original_max_position_embeddings")
    return int(beside or inside or config.max_position_embeddings)


def long_ropes(model: PreTrainedModel) -> list[LongRope]:
    return [module for module in model.modules() if isinstance(module, LongRope)]


def choose_tables_of_one_sequence(model: PreTrainedModel, position_ids: torch.Tensor) -> None:
    """Before a pass over the positions [1, num_tokens] of a single sequence, outside of a step."""
    original_max_len = long_rope_length(model.config)
    if original_max_len is None:
        return
    is_long = bool((position_ids >= original_max_len).any())
    for rope in long_ropes(model):
        rope.table_indices = torch.full_like(position_ids, int(is_long))


def replace_long_rope(model: PreTrainedModel) -> None:
    """Give a LongRoPE model rotary modules that choose by sequence; others stay as they are.

    Raises:
        ModelLoadError: the model's rotation is laid out in a way that is not known here.
    """
    original_max_len = long_rope_length(model.config)
    if original_max_len is None:
        return
    tables = _tables(model.config, original_max_len)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if getattr(child, "rope_type", None) in LONG_ROPE_TYPES:
                rope = LongRope(child, tables).to(model.device)
                if not _are_equal_for_short_sequences(rope, child, model, original_max_len):
                    raise _unknown(model)
                setattr(parent, name, rope)
    if not long_ropes(model):
        raise _unknown(model)


def _tables(config: PreTrainedConfig, original_max_len: int) -> RopeTables:
    """Most models scale both alike; PhiMoE names a scale for each."""
    compute = ROPE_INIT_FUNCTIONS["longrope"]
    short, scale = compute(config, seq_len=original_max_len)
    long, _ = compute(config, seq_len=original_max_len + 1)
    names = ("short_mscale", "long_mscale")
    scales = [float(config.rope_parameters.get(name) or scale) for name in names]
    return RopeTables(torch.stack((short, long)), torch.tensor(scales))


@torch.no_grad()
def _are_equal_for_short_sequences(
    rope: LongRope, stock: nn.Module, model: PreTrainedModel, original_max_len: int
) -> bool:
    step = max(1, original_max_len // _NUM_COMPARED)
    position_ids = torch.arange(0, original_max_len, step, device=model.device)[None]
    x = torch.zeros(1, 1, device=model.device)
    rope.table_indices = torch.zeros_like(position_ids)
    expected = stock(x, position_ids)
    return isinstance(expected, tuple) and all(
        ours.shape == theirs.shape and torch.allclose(ours, theirs, atol=_LAYOUT_TOLERANCE)
        for ours, theirs in zip(rope(x, position_ids), expected, strict=True)
    )


def _unknown(model: PreTrainedModel) -> ModelLoadError:
    return ModelLoadError(
        f"{type(model).__name__} uses LongRoPE in a way that Hearth does not know: choose a model "
        "whose layers all rotate like Phi-3's or Llama's."
    )
