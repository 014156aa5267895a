"""The formats by name: what a token takes, and that attention in the rotated space is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.errors import ConfigError
from engine.kv.hadamard import hadamard
from engine.kv.key_basis import KeyBasis, hadamard_basis, transform
from engine.kv.schemes import KV_SCHEMES, kv_scheme

HEAD_DIMS = (64, 96, 128)
QUANTIZED = ("int8", "k8v4", "int4")


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize(("name", "limit"), [("int8", 0.52), ("k8v4", 0.42), ("int4", 0.29)])
def test_bytes_per_token_against_bf16(name: str, limit: float, head_dim: int) -> None:
    ours, plain = (
        kv_scheme(scheme).bytes_per_token(24, 8, head_dim, torch.bfloat16)
        for scheme in (name, "none")
    )
    assert plain == 2 * 24 * 8 * head_dim * 2
    assert ours / plain <= limit


@pytest.mark.parametrize(
    ("name", "dtype", "expected_kib"),
    [
        # Phi-3-mini: 32 layers, 32 KV heads of 96
        ("none", torch.bfloat16, 384),
        ("none", torch.float32, 768),
        ("int8", torch.bfloat16, 196),
        ("k8v4", torch.bfloat16, 158),
        ("int4", torch.bfloat16, 110),
    ],
)
def test_bytes_per_token(name: str, dtype: torch.dtype, expected_kib: int) -> None:
    assert kv_scheme(name).bytes_per_token(32, 32, 96, dtype) == expected_kib * 1024


@pytest.mark.parametrize(
    ("name", "tolerance"),
    # A key's error is about step / sqrt(12) a number; the step is 2 * 3 / 127, or 2.7 / 7.5 where
    # 84 numbers share it, and four standard deviations of the sum over 96 products are allowed.
    [("none", 0.0), ("int8", 0.03), ("k8v4", 0.03), ("int4", 0.48)],
)
def test_scores_equal_those_of_unrotated_keys(name: str, tolerance: float) -> None:
    scheme = kv_scheme(name)
    query, key = vectors(20, 96, seed=1), vectors(20, 96, seed=2)
    scores = scheme.prepare_queries(query, 0) @ scheme.keys.decode(*scheme.encode_keys(key, 0)).T
    assert (scores - query @ key.T).abs().max() <= tolerance * 96**0.5


@pytest.mark.parametrize("name", QUANTIZED)
def test_what_is_stored_is_rotated(name: str) -> None:
    scheme = kv_scheme(name)
    some = vectors(4, 2, 64)
    for codec, encoded in (
        (scheme.keys, scheme.encode_keys(some, 0)),
        (scheme.values, scheme.encode_values(some)),
    ):
        assert torch.equal(encoded.data, codec.encode(hadamard(some)).data)
    torch.testing.assert_close(scheme.rotate_back(scheme.prepare_queries(some, 0)), some)


def test_a_key_basis_shifts_the_scores_of_a_query_all_alike() -> None:
    offsets = vectors(2, 3, 64, seed=3) * 10
    basis = KeyBasis(offsets, *(matrices.float() for matrices in inverse_matrices(2, 3, 64)))
    scheme = replace(kv_scheme("int4"), key_basis=basis)
    query, key = vectors(1, 6, 64, seed=1), vectors(50, 3, 64, seed=2) + offsets[1]
    prepared = scheme.prepare_queries(query, 1)
    exact = basis.transform_keys(key, 1)
    stored = scheme.keys.decode(*scheme.encode_keys(key, 1))
    for head in range(6):
        expected = (key - offsets[1])[:, head // 2] @ query[0, head]
        # Sums of 64 products of about 1, in float32, through a matrix of condition 10.
        assert (exact[:, head // 2] @ prepared[0, head] - expected).abs().max() < 1e-4
        # Steps of 2.7 / 7.5 of the stored keys' size, through matrices that double some numbers.
        errors = stored[:, head // 2] @ prepared[0, head] - expected
        assert errors.square().mean() < 0.2 * expected.square().mean()


def inverse_matrices(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A random matrix for each head, of condition 10, and the transposed inverses."""
    generator = torch.Generator().manual_seed(4)
    random = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64)
    left, _, right = torch.linalg.svd(random)
    matrices = (left * torch.logspace(-0.5, 0.5, shape[-1], dtype=torch.float64)) @ right
    return matrices, torch.linalg.inv(matrices).mT


def test_a_transformed_vector_does_not_depend_on_its_neighbours() -> None:
    matrices = vectors(3, 64, 64)
    many = vectors(33, 3, 64, seed=1)
    together = transform(many, matrices)
    for row in (0, 7, 32):
        assert torch.equal(transform(many[row : row + 1], matrices), together[row : row + 1])
    torch.testing.assert_close(together[:, 1], many[:, 1] @ matrices[1], atol=1e-4, rtol=1e-4)


def test_an_unlearnt_basis_is_the_rotation() -> None:
    basis = hadamard_basis(2, 3, 96)
    some = vectors(5, 3, 96)
    for transformed in (basis.transform_keys(some, 1), basis.transform_queries(some, 0)):
        torch.testing.assert_close(transformed, hadamard(some))


def test_none_rotates_nothing() -> None:
    scheme = kv_scheme("none")
    some = vectors(4, 2, 64).bfloat16()
    assert torch.equal(scheme.encode_keys(some, 0).data, some)
    assert torch.equal(scheme.prepare_queries(some, 0), some)
    assert torch.equal(scheme.rotate_back(some), some)


def test_only_formats_that_round_are_quantized() -> None:
    assert [scheme.name for scheme in KV_SCHEMES if scheme.is_quantized] == list(QUANTIZED)


def test_an_unknown_scheme_is_refused() -> None:
    message = r"no KV cache format 'int3': use one of none, int8, k8v4, int4"
    with pytest.raises(ConfigError, match=message):
        kv_scheme("int3")
