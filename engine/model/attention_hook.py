"""Connects a Transformers model's attention layers to an attention back end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedConfig

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.errors import ModelLoadError

IMPLEMENTATION = "hearth"
# What some models ask of their attention that no back end here computes.
_UNSUPPORTED_ARGUMENTS = ("softcap", "s_aux", "position_bias", "head_mask")


@dataclass(frozen=True, slots=True)
class StepAttention:
    """Travels through `forward` as the keyword argument `step_attention` to every layer."""

    backend: AttentionBackend
    metadata: AttentionMetadata
    windows: Sequence[int | None]  # by layer


def register_attention() -> None:
    """Make "hearth" an attention implementation that models can be loaded with."""
    AttentionInterface.register(IMPLEMENTATION, _attend)


def layer_windows(config: PreTrainedConfig, max_model_len: int) -> tuple[int | None, ...]:
    """The sliding window of each layer; one as long as the context is none.

    Raises:
        ModelLoadError: a layer's attention is of a kind that is not supported.
    """
    window = getattr(config, "sliding_window", None)
    if window is not None and window >= max_model_len:
        window = None
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return (window,) * config.num_hidden_layers
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ModelLoadError(
            f"This model has layers of the kind {', '.join(sorted(unknown))}, which Hearth does "
            "not support: choose a model with full or sliding-window attention."
        )
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_tokens + padding, head_dim]
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    step_attention: StepAttention,
    scaling: float | None = None,
    **arguments: Any,
) -> tuple[torch.Tensor, None]:
    for name in _UNSUPPORTED_ARGUMENTS:
        if arguments.get(name) is not None:
            raise ModelLoadError(f"This model's attention uses {name}, which is not supported.")
    layer_index: int = module.layer_idx  # type: ignore[assignment]
    num_tokens = len(step_attention.metadata.slot_mapping)
    num_padding = query.shape[2] - num_tokens
    output = step_attention.backend.attend(
        layer_index,
        query[0, :, :num_tokens].transpose(0, 1),
        key[0, :, :num_tokens].transpose(0, 1),
        value[0, :, :num_tokens].transpose(0, 1),
        step_attention.metadata,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        step_attention.windows[layer_index],
    )
    if num_padding:
        output = functional.pad(output, (0, 0, 0, 0, 0, num_padding))
    return output[None], None
