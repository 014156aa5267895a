"""The formats by name: what a token takes, and that attention in the rotated space is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.errors import ConfigError
from engine.kv.hadamard import hadamard
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
        ("int4", torch.bfloat16, 108),
    ],
)
def test_bytes_per_token(name: str, dtype: torch.dtype, expected_kib: int) -> None:
    assert kv_scheme(name).bytes_per_token(32, 32, 96, dtype) == expected_kib * 1024


@pytest.mark.parametrize(
    ("name", "tolerance"),
    # A key's error is about step / sqrt(12) a number; the step is 2 * 3 / 127 or 2.3 / 7.5, and
    # four standard deviations of the sum over 96 products are allowed.
    [("none", 0.0), ("int8", 0.03), ("k8v4", 0.03), ("int4", 0.4)],
)
def test_scores_equal_those_of_unrotated_keys(name: str, tolerance: float) -> None:
    scheme = kv_scheme(name)
    query, key = vectors(20, 96, seed=1), vectors(20, 96, seed=2)
    scores = scheme.rotate(query) @ scheme.keys.decode(*scheme.encode_keys(key, 0)).T
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
    torch.testing.assert_close(scheme.rotate_back(scheme.rotate(some)), some)


def test_key_offsets_shift_the_scores_of_a_query_all_alike() -> None:
    offsets = vectors(2, 3, 64, seed=3) * 10
    scheme = replace(kv_scheme("int8"), key_offsets=offsets)
    query, key = vectors(1, 64, seed=1), vectors(50, 3, 64, seed=2) + offsets[1]
    stored = scheme.keys.decode(*scheme.encode_keys(key, 1))
    for head in range(3):
        shifts = query @ key[:, head].T - scheme.rotate(query) @ stored[:, head].T
        # Each score is off by its rounding, 64 times a step of about 6 / 254 / sqrt(12).
        assert shifts.max() - shifts.min() < 0.03 * 8
        assert (shifts - query @ offsets[1, head]).abs().max() < 0.03 * 8


def test_none_rotates_nothing() -> None:
    scheme = kv_scheme("none")
    some = vectors(4, 2, 64).bfloat16()
    assert torch.equal(scheme.encode_keys(some, 0).data, some)
    assert torch.equal(scheme.rotate(some), some)
    assert torch.equal(scheme.rotate_back(some), some)


def test_only_formats_that_round_are_quantized() -> None:
    assert [scheme.name for scheme in KV_SCHEMES if scheme.is_quantized] == list(QUANTIZED)


def test_an_unknown_scheme_is_refused() -> None:
    message = r"no KV cache format 'int3': use one of none, int8, k8v4, int4"
    with pytest.raises(ConfigError, match=message):
        kv_scheme("int3")
