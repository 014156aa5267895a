"""Linear layers that multiply the other way round, which MKL does faster for few rows.

A row-major product X W^T of 2 to 64 rows spends much of its time on rearranging W. Computed as
(W X^T)^T it reads W as it lies. Same numbers up to rounding; a structure is replaced, no model.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel


class TransposedLinear(nn.Module):
    """y = x W^T + b for float32 on a CPU. Shares the weight of the layer it stands for."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.weight = linear.weight
        self.bias = linear.bias

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = inputs.reshape(-1, self.in_features)
        num_rows = len(rows)
        # A single row would become a product of matrix and vector: slower, and summed differently.
        columns = rows.expand(2, -1).t() if num_rows == 1 else rows.t()
        outputs = torch.mm(self.weight, columns).t()[:num_rows]
        if self.bias is not None:
            outputs = outputs + self.bias
        return outputs.unflatten(0, inputs.shape[:-1])


def transpose_linears(model: PreTrainedModel) -> None:
    """Replace every plain nn.Linear; layers with a forward of their own stay as they are."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, TransposedLinear(child))


def is_worthwhile(model: PreTrainedModel) -> bool:
    """Where it was measured to be faster: float32 through MKL."""
    return (
        model.device.type == "cpu"
        and model.dtype == torch.float32
        and torch.backends.mkl.is_available()
    )
