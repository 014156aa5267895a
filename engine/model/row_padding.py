"""How many tokens a row must be a multiple of, so that a token's numbers do not depend on the rest.

A matrix product may sum in another order for few rows than for many. The difference is a rounding
error, but a quantized KV cache amplifies it: a value that rounds the other way is off by a step,
and logits by a tenth. On CPUs the order is the same from a few rows on, in multiples of few; what
this machine's library does is tried out on the model's own weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from engine.model.transposed_linear import TransposedLinear

_MULTIPLES = (1, 2, 4, 8, 16)
_FACTORS = (1, 2, 3, 5, 7)
_NUM_ROWS = 256


class Product(NamedTuple):
    rows: torch.Tensor  # [_NUM_ROWS, in_features]
    multiply: Callable[[torch.Tensor], torch.Tensor]


@torch.inference_mode()
def find_row_multiple(model: PreTrainedModel) -> int:
    """The smallest multiple that makes rows independent of their number; 1 if there is none."""
    # Without the last product, from hidden states to logits: no K and V come after it.
    head = model.get_output_embeddings()
    by_shape = {
        module.weight.shape: module
        for module in model.modules()
        if isinstance(module, nn.Linear | TransposedLinear) and module is not head
    }
    return smallest_multiple([_product(linear) for linear in by_shape.values()])


def smallest_multiple(products: Sequence[Product]) -> int:
    expected = [product.multiply(product.rows) for product in products]
    for multiple in _MULTIPLES:
        counts = [multiple * factor for factor in _FACTORS]
        if all(
            torch.equal(product.multiply(product.rows[:count]), result[:count])
            for product, result in zip(products, expected, strict=True)
            for count in counts
        ):
            return multiple
    return 1


def probe_rows(weight: torch.Tensor) -> torch.Tensor:
    """Random rows to multiply with a weight [out_features, in_features]."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(_NUM_ROWS, weight.shape[1], generator=generator).to(weight)


def _product(linear: nn.Linear | TransposedLinear) -> Product:
    rows = probe_rows(linear.weight)
    if isinstance(linear, TransposedLinear):
        return Product(rows, linear)
    # Not the module itself: a router's may return more than the product.
    return Product(rows, lambda some: functional.linear(some, linear.weight, linear.bias))
