"""The rotation: orthogonal, its own inverse, and block by block."""

from __future__ import annotations

import pytest
import torch

from engine.kv.hadamard import hadamard, hadamard_block

HEAD_DIMS = (64, 128, 96, 80, 24, 5)


@pytest.mark.parametrize(
    ("head_dim", "block"), [(64, 64), (128, 128), (96, 32), (80, 16), (24, 8), (5, 1)]
)
def test_blocks_are_the_largest_power_of_two(head_dim: int, block: int) -> None:
    assert hadamard_block(head_dim) == block


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_rotation_is_orthogonal_and_its_own_inverse(head_dim: int) -> None:
    matrix = hadamard(torch.eye(head_dim))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(head_dim))
    torch.testing.assert_close(matrix, matrix.T)


def test_rotation_of_two_is_sum_and_difference() -> None:
    rotated = hadamard(torch.tensor([[3.0, 1.0]]))
    torch.testing.assert_close(rotated, torch.tensor([[4.0, 2.0]]) / 2**0.5)


def test_rotation_stays_within_its_block() -> None:
    one = torch.zeros(96)
    one[40] = 1.0
    assert hadamard(one).nonzero().flatten().tolist() == list(range(32, 64))
