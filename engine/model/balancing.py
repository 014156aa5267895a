"""Bases in which two kinds of vectors, multiplied with each other, are spread alike."""

from __future__ import annotations

from typing import NamedTuple

import torch

_REGULARIZATION = 1e-3  # of the mean variance, added to every direction: samples are small
_SMALLEST_RATIO = 1e-6  # between directions' spreads; keeps matrices easy to invert
_SEED = 0


class BalancedMatrices(NamedTuple):
    """x @ left and y @ right have the same product as x and y; [..., d, d], float64."""

    left: torch.Tensor
    right: torch.Tensor


def balanced_matrices(
    left_moments: torch.Tensor, right_moments: torch.Tensor, num_leading: int
) -> BalancedMatrices:
    """From second moments [..., d, d] of both; NaN where they are not finite.

    With S and T for them and S^1/2 T S^1/2 = U diag(l) U^T, the matrix S^-1/2 U diag(l^1/4) makes
    both diag(l^1/2), as balanced truncation does. The widest `num_leading` directions come first.
    The others are mixed by a fixed random rotation, so that each of them has its share of the
    large numbers; and the left vectors keep their mean square.
    """
    left_moments, is_left_good = _regularized(left_moments)
    right_moments, is_right_good = _regularized(right_moments)
    root, inverse_root = _roots(left_moments)
    spreads, directions = torch.linalg.eigh(root @ right_moments @ root)
    spreads, directions = spreads.flip(-1), directions.flip(-1)
    spreads = spreads.clamp(min=_SMALLEST_RATIO * spreads[..., :1])
    left = inverse_root @ (directions * spreads[..., None, :] ** 0.25)
    left = left @ _rotation(left.shape[-1], num_leading).to(left.device)
    left = left * (_trace(left_moments) / _trace(left.mT @ left_moments @ left)).sqrt()
    # Rounded before it is inverted: what is left of small differences is the same every time.
    left = left.bfloat16().double()
    left = torch.where((is_left_good & is_right_good)[..., None, None], left, torch.nan)
    return BalancedMatrices(left, torch.linalg.inv(left).mT)


def _regularized(moments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """With something in every direction; and which are finite, identities standing for others."""
    identity = torch.eye(moments.shape[-1], dtype=moments.dtype, device=moments.device)
    is_good = moments.isfinite().all(dim=-1).all(dim=-1)
    moments = torch.where(is_good[..., None, None], (moments + moments.mT) / 2, identity)
    added = _REGULARIZATION * _trace(moments) / moments.shape[-1]
    return moments + torch.where(added > 0, added, 1.0) * identity, is_good


def _roots(moments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The symmetric square root and its inverse."""
    values, vectors = torch.linalg.eigh(moments)
    values = values.clamp(min=_SMALLEST_RATIO * values[..., -1:]).sqrt()[..., None, :]
    return (vectors * values) @ vectors.mT, (vectors / values) @ vectors.mT


def _rotation(size: int, num_leading: int) -> torch.Tensor:
    """Block diagonal: an identity, then an orthogonal matrix from a fixed seed."""
    generator = torch.Generator().manual_seed(_SEED)
    num_others = size - num_leading
    random = torch.randn(num_others, num_others, generator=generator, dtype=torch.float64)
    orthogonal, triangular = torch.linalg.qr(random)
    leading = torch.eye(num_leading, dtype=torch.float64)
    return torch.block_diag(leading, orthogonal * triangular.diag().sign())


def _trace(moments: torch.Tensor) -> torch.Tensor:
    """[..., 1, 1]"""
    return moments.diagonal(dim1=-2, dim2=-1).sum(dim=-1)[..., None, None]
