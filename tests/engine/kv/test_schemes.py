"""Formats of stored vectors: bounds of their error, exactness of the rotation, bad numbers."""

from __future__ import annotations

import pytest
import torch

from engine.errors import ConfigError
from engine.kv.schemes import hadamard, hadamard_block, kv_scheme

HEAD_DIMS = (64, 128, 96, 80, 24, 5)


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("head_dim", "block"), [(64, 64), (128, 128), (96, 32), (80, 16), (24, 8), (5, 1)]
)
def test_hadamard_blocks_are_the_largest_power_of_two(head_dim: int, block: int) -> None:
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


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_int8_error_is_at_most_half_a_step(head_dim: int) -> None:
    scheme = kv_scheme("int8")
    original = vectors(50, 3, head_dim)
    encoded = scheme.encode(original)
    assert encoded.data.dtype == torch.int8
    assert encoded.scales is not None
    assert encoded.scales.dtype == torch.float16
    rotated = hadamard(original)
    step = encoded.scales.float()[..., None]
    errors = (scheme.decode(encoded.data, encoded.scales) - rotated).abs()
    # The scale may round down by 1/2048, which moves the largest number by 127/2048 of a step.
    assert (errors <= step * (0.5 + 127 / 2048)).all()


def test_int8_scores_equal_those_of_unrotated_keys() -> None:
    scheme = kv_scheme("int8")
    query, key = vectors(20, 96, seed=1), vectors(20, 96, seed=2)
    encoded = scheme.encode(key)
    scores = scheme.rotate(query) @ scheme.decode(*encoded).T
    assert (scores - query @ key.T).abs().max() < 0.03 * 96**0.5


def test_int8_vector_does_not_depend_on_its_neighbours() -> None:
    scheme = kv_scheme("int8")
    many = vectors(33, 2, 64)
    together, alone = scheme.encode(many), scheme.encode(many[7:8])
    assert torch.equal(together.data[7:8], alone.data)
    assert together.scales is not None
    assert alone.scales is not None
    assert torch.equal(together.scales[7:8], alone.scales)


@pytest.mark.parametrize("tiny", [0.0, 1e-9])
def test_int8_vectors_of_zeros_and_near_zeros_become_zeros(tiny: float) -> None:
    scheme = kv_scheme("int8")
    encoded = scheme.encode(torch.full((2, 64), tiny))
    assert torch.equal(scheme.decode(*encoded), torch.zeros(2, 64))


def test_int8_scale_beyond_float16_saturates() -> None:
    encoded = kv_scheme("int8").encode(torch.full((1, 64), 1e9))
    assert encoded.scales is not None
    assert encoded.scales.tolist() == [65504.0]
    assert encoded.data.abs().max() == 127


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_int8_keeps_bad_numbers_visible_in_their_own_vector_only(bad: float) -> None:
    scheme = kv_scheme("int8")
    some = vectors(3, 64)
    some[1, 5] = bad
    decoded = scheme.decode(*scheme.encode(some))
    assert decoded.isnan().all(dim=-1).tolist() == [False, True, False]
    assert decoded[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_none_stores_the_model_type_exactly(dtype: torch.dtype) -> None:
    scheme = kv_scheme("none")
    some = vectors(4, 2, 64).to(dtype)
    encoded = scheme.encode(some)
    assert torch.equal(scheme.decode(*encoded), some.float())
    assert scheme.data_dtype(dtype) == dtype
    assert torch.equal(scheme.rotate(some), some)
    assert torch.equal(scheme.rotate_back(some), some)


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        # Phi-3-mini: 32 layers, 32 KV heads of 96
        ("none", torch.bfloat16, 384 * 1024),
        ("int8", torch.bfloat16, 196 * 1024),
        ("none", torch.float32, 768 * 1024),
    ],
)
def test_bytes_per_token(name: str, dtype: torch.dtype, expected: int) -> None:
    assert kv_scheme(name).bytes_per_token(32, 32, 96, dtype) == expected


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no KV cache format 'int3': use int8 or none"):
        kv_scheme("int3")
