"""Mixtures of experts whose rows do not depend on how many other rows an expert gets.

A step's tokens are grouped by expert, so each expert's product has as many rows as there are tokens
that chose it: it depends on who else is in the step. Like the linear layers' rows
(engine/model/row_padding.py), an expert's are therefore padded to a multiple from which on the
library adds in one order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from engine.model.row_padding import Product, probe_rows, smallest_multiple

IMPLEMENTATION = "hearth_padded"
# Transformers' own: one product for all experts on GPUs and CPUs that can, else a loop over them.
_DEFAULT = None
_MULTIPLE = "_hearth_row_multiple"


def use_padded_experts(model: PreTrainedModel, is_wanted: bool) -> None:
    """Switch a model's experts to rows that are independent of the load, or back."""
    experts = experts_of(model)
    if not experts:
        return
    if not (is_wanted and all(is_plain(module) for module in experts)):
        model.set_experts_implementation(model.get_correct_experts_implementation(_DEFAULT))
        return
    ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, padded_experts)
    for module in experts:
        if not hasattr(module, _MULTIPLE):
            setattr(module, _MULTIPLE, _smallest_multiple(module))
    model.set_experts_implementation(IMPLEMENTATION)


def experts_of(model: PreTrainedModel) -> list[nn.Module]:
    """Modules that ask Transformers' interface how to compute; their weights are in 3D."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "down_proj") and hasattr(module, "has_gate")
    ]


def is_plain(module: Any) -> bool:
    """Gate and up projection in one matrix [out, in] for each expert, and nothing besides."""
    return bool(
        module.has_gate
        and not module.is_transposed
        and not module.has_bias
        and not getattr(module, "has_post_expert_norm", False)
    )


def padded_experts(
    self: Any,
    hidden_states: torch.Tensor,  # [num_tokens, hidden_size]
    top_k_index: torch.Tensor,  # int64 [num_tokens, num_chosen]
    top_k_weights: torch.Tensor,  # [num_tokens, num_chosen]
) -> torch.Tensor:
    """An implementation for Transformers' ExpertsInterface; `self` is the experts' module."""
    num_chosen = top_k_index.shape[1]
    chosen = top_k_index.reshape(-1)
    order = torch.argsort(chosen, stable=True)
    outputs = hidden_states.new_empty(len(chosen), hidden_states.shape[1])
    start = 0
    for expert, count in enumerate(torch.bincount(chosen).tolist()):
        if count:
            pairs = order[start : start + count]
            start += count
            rows = _padded(hidden_states[pairs // num_chosen], getattr(self, _MULTIPLE))
            gated = self._apply_gate(_multiply(rows, self.gate_up_proj[expert]))
            outputs[pairs] = _multiply(gated, self.down_proj[expert])[:count]
    weighted = outputs.unflatten(0, top_k_index.shape) * top_k_weights[..., None]
    return weighted.sum(dim=1).to(hidden_states.dtype)


def _multiply(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """X W^T as (W X^T)^T, see engine/model/transposed_linear.py."""
    return torch.mm(weight, rows.t()).t()


def _padded(rows: torch.Tensor, multiple: int) -> torch.Tensor:
    # A single row would become a product of matrix and vector, which adds in another order.
    num_rows = max(2, -(-len(rows) // multiple) * multiple)
    return nn.functional.pad(rows, (0, 0, 0, num_rows - len(rows)))


def _smallest_multiple(module: Any) -> int:
    weights: tuple[torch.Tensor, ...] = (module.gate_up_proj[0], module.down_proj[0])
    products = [Product(probe_rows(weight), partial(_product, weight)) for weight in weights]
    return smallest_multiple(products)


def _product(weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return _multiply(_padded(rows, 1), weight)[: len(rows)]
