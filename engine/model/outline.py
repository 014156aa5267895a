"""What a model's configuration says of its size. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutline:
    """A model's shape, counted without its weights."""

    name: str  # as asked for
    architecture: str
    dtype: str  # of weights and activations, and of KV in the format `none`
    bytes_per_number: int  # in that type
    num_parameters: int
    num_active_parameters: int | None  # used for one token; None: its experts cannot be told apart
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int  # of one expert, where there are experts
    num_active_experts: int  # 1 where there are none
    vocab_size: int
    trained_model_len: int
    max_model_len: int  # what Hearth serves
    sliding_window: int | None  # shorter than the context; masked, its blocks are kept
    kv_bytes_per_token: Mapping[str, int]  # in each format that can hold heads of this size

    @property
    def weights_bytes(self) -> int:
        return self.num_parameters * self.bytes_per_number
