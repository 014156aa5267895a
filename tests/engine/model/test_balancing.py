"""Balanced bases: products stay, both kinds are spread alike, and nothing breaks them."""

from __future__ import annotations

import pytest
import torch

from engine.model.balancing import balanced_matrices


def moments(seed: int, *shape: int, size: int = 32) -> torch.Tensor:
    """Of vectors whose directions differ in size by a factor of 100."""
    generator = torch.Generator().manual_seed(seed)
    some = torch.randn(*shape, 200, size, generator=generator, dtype=torch.float64)
    mixed, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    some = some * torch.logspace(-1, 1, size, dtype=torch.float64) @ mixed
    return some.mT @ some / 200


def test_products_stay_and_the_widest_directions_come_first() -> None:
    keys, queries = moments(1, 2, 3), moments(2, 2, 3)
    left, right = balanced_matrices(keys, queries, 4)
    identity = torch.eye(32, dtype=torch.float64).expand(2, 3, 32, 32)
    torch.testing.assert_close(left @ right.mT, identity, atol=1e-9, rtol=0)
    spread, other = left.mT @ keys @ left, right.mT @ queries @ right
    # Both alike, but for a common factor, what was added to small samples, and eight bits.
    ratio = (spread.diagonal(dim1=-2, dim2=-1) / other.diagonal(dim1=-2, dim2=-1)).log()
    assert (ratio - ratio.mean(dim=-1, keepdim=True)).abs().max() < 0.2
    variances = spread.diagonal(dim1=-2, dim2=-1)
    assert (variances[..., :3] > variances[..., 1:4]).all()
    assert (variances[..., :4].amin(dim=-1) > variances[..., 4:].amax(dim=-1)).all()
    torch.testing.assert_close(
        variances.sum(dim=-1), keys.diagonal(dim1=-2, dim2=-1).sum(dim=-1), rtol=0.02, atol=0
    )


@pytest.mark.parametrize("size", [6, 64])
def test_constant_and_missing_directions_are_no_trouble(size: int) -> None:
    zeros = torch.zeros(size, size, dtype=torch.float64)
    one = zeros.clone()
    one[0, 0] = 1e4
    for keys in (zeros, one, moments(1, size=size)):
        for queries in (zeros, one, moments(2, size=size)):
            left, right = balanced_matrices(keys, queries, 2)
            assert left.isfinite().all()
            assert right.isfinite().all()
            assert torch.linalg.cond(left) < 1e5


def test_bad_moments_are_bad_for_their_own_head_only() -> None:
    keys, queries = moments(1, 3), moments(2, 3)
    control, _ = balanced_matrices(keys, queries, 4)
    keys[0, 1, 2] = torch.nan
    queries[2, 0, 0] = torch.inf
    left, right = balanced_matrices(keys, queries, 4)
    assert left[[0, 2]].isnan().all()
    assert torch.equal(left[1], control[1])
    assert right[1].isfinite().all()
