"""The rotation that spreads a vector's outliers over all its numbers before they are rounded."""

from __future__ import annotations

import math

import torch


def hadamard_block(head_dim: int) -> int:
    """The largest power of two that divides `head_dim` (96: 32, three blocks)."""
    return head_dim & -head_dim


def hadamard(vectors: torch.Tensor) -> torch.Tensor:
    """Orthonormal Walsh-Hadamard transform of float32 [..., head_dim], block by block.

    Symmetric, hence its own inverse. Additions only, in a fixed order, and one product by
    1/sqrt(block) at the end: a vector's result never depends on how many others are transformed
    with it.
    """
    head_dim = vectors.shape[-1]
    block = hadamard_block(head_dim)
    half = 1
    while half < block:
        pairs = vectors.reshape(*vectors.shape[:-1], head_dim // (2 * half), 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        vectors = torch.stack((first + second, first - second), dim=-2)
        vectors = vectors.reshape(*vectors.shape[:-3], head_dim)
        half *= 2
    return vectors * (1.0 / math.sqrt(block))
