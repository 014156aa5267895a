"""How single vectors are stored: bounds of their error, bad numbers, numbers too small."""

from __future__ import annotations

import pytest
import torch

from engine.errors import ConfigError
from engine.kv.codecs import (
    Int4Codec,
    Int8Codec,
    LeadingInt8Codec,
    ModelTypeCodec,
    VectorCodec,
)

HEAD_DIMS = (64, 128, 96, 80, 24, 6)
QUANTIZED = (Int8Codec(), Int4Codec(32), Int4Codec(16), LeadingInt8Codec())


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def round_trip(codec: VectorCodec, some: torch.Tensor) -> torch.Tensor:
    return codec.decode(*codec.encode(some))


@pytest.mark.parametrize("head_dim", [*HEAD_DIMS, 5])
def test_int8_error_is_at_most_half_a_step(head_dim: int) -> None:
    original = vectors(50, 3, head_dim)
    encoded = Int8Codec().encode(original)
    assert encoded.data.dtype == torch.int8
    assert encoded.scales is not None
    assert encoded.scales.dtype == torch.float16
    assert encoded.scales.shape == (50, 3)
    step = encoded.scales.float()[..., None]
    errors = (Int8Codec().decode(*encoded) - original).abs()
    # The scale may round down by 1/2048, which moves the largest number by 127/2048 of a step.
    assert (errors <= step * (0.5 + 127 / 2048)).all()


@pytest.mark.parametrize("group_size", [16, 32])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_int4_error_is_at_most_half_a_step_of_its_group(head_dim: int, group_size: int) -> None:
    codec = Int4Codec(group_size)
    # Groups of very different sizes: each has its own step.
    original = vectors(50, 3, head_dim) * 2.0 ** (torch.arange(head_dim) // group_size)
    encoded = codec.encode(original)
    assert encoded.data.dtype == torch.uint8
    assert encoded.data.shape == (50, 3, head_dim // 2)
    assert encoded.scales is not None
    assert encoded.scales.dtype == torch.float16
    assert encoded.scales.shape == (50, 3, -(-head_dim // group_size))
    steps = encoded.scales.float().repeat_interleave(group_size, dim=-1)[..., :head_dim]
    errors = (codec.decode(*encoded) - original).abs()
    # What is as far from zero as the extreme, on the other side, becomes 7 instead of 8; and the
    # scale may be off by 1/2048.
    assert (errors <= steps.abs() * (1.0 + 8 / 2048)).all()
    assert (errors <= steps.abs() * (0.5 + 8 / 2048)).float().mean() > 0.98


@pytest.mark.parametrize("head_dim", [4, 14, 16, 18, 30, 32, 100, *HEAD_DIMS])
def test_leading_numbers_are_those_of_int8_and_the_others_those_of_int4(head_dim: int) -> None:
    codec = LeadingInt8Codec()
    original = vectors(50, 3, head_dim)
    num_leading = codec.num_leading(head_dim)
    original[..., :num_leading] *= 20
    encoded = codec.encode(original)
    assert encoded.data.dtype == torch.uint8
    assert encoded.data.shape == (50, 3, codec.data_size(head_dim))
    assert encoded.scales is not None
    assert encoded.scales.dtype == torch.float16
    assert encoded.scales.shape == (50, 3, 2)
    decoded = codec.decode(*encoded)
    leading = round_trip(Int8Codec(), original[..., :num_leading])
    others = round_trip(Int4Codec(128), original[..., num_leading:])
    assert torch.equal(decoded, torch.cat((leading, others), dim=-1))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_numbers_after_the_leading_ones_leave_those_alone(bad: float) -> None:
    some = vectors(2, 64)
    some[1, 8] = bad
    decoded = round_trip(LeadingInt8Codec(), some)
    assert decoded[:, :8].isfinite().all()
    assert decoded[:, 8:].isnan().all(dim=-1).tolist() == [False, True]


@pytest.mark.parametrize("sign", [1, -1])
def test_int4_packs_the_first_half_low_and_the_second_high(sign: int) -> None:
    levels = torch.tensor([7, -8, -1, 0, 1, -7])
    encoded = Int4Codec(16).encode(levels * 2.0 * sign)
    assert encoded.data.tolist() == [15 | 8 << 4, 0 | 9 << 4, 7 | 1 << 4]
    assert encoded.scales is not None
    assert encoded.scales.tolist() == [2.0 * sign]


@pytest.mark.parametrize("codec", QUANTIZED)
def test_a_vector_does_not_depend_on_its_neighbours(codec: VectorCodec) -> None:
    many = vectors(33, 2, 64)
    together, alone = codec.encode(many), codec.encode(many[7:8])
    assert torch.equal(together.data[7:8], alone.data)
    assert together.scales is not None
    assert alone.scales is not None
    assert torch.equal(together.scales[7:8], alone.scales)


@pytest.mark.parametrize("codec", QUANTIZED)
@pytest.mark.parametrize("tiny", [0.0, 1e-9, -1e-9])
def test_zeros_and_near_zeros_become_zeros(codec: VectorCodec, tiny: float) -> None:
    assert torch.equal(round_trip(codec, torch.full((2, 64), tiny)), torch.zeros(2, 64))


def test_a_group_of_zeros_stays_zeros_beside_one_that_is_none() -> None:
    some = vectors(1, 64)
    some[:, 32:] = 0
    decoded = round_trip(Int4Codec(32), some)
    assert torch.equal(decoded[:, 32:], torch.zeros(1, 32))
    assert decoded[:, :32].abs().max() > 1


@pytest.mark.parametrize("codec", QUANTIZED)
def test_a_scale_beyond_float16_saturates(codec: VectorCodec) -> None:
    encoded = codec.encode(torch.full((1, 16), 1e9))
    assert encoded.scales is not None
    assert encoded.scales.abs().unique().tolist() == [65504.0]
    largest = {127 * 65504.0, 8 * 65504.0}
    assert set(codec.decode(*encoded).unique().tolist()) <= largest


@pytest.mark.parametrize("codec", QUANTIZED)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_bad_numbers_stay_visible_in_their_own_vector_only(codec: VectorCodec, bad: float) -> None:
    some = vectors(3, 64)
    some[1, 5] = bad
    decoded = round_trip(codec, some)
    # With groups, in their own group only; the leading 8 are one.
    assert decoded[:, :8].isnan().all(dim=-1).tolist() == [False, True, False]
    assert decoded[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_model_type_is_stored_exactly(dtype: torch.dtype) -> None:
    codec = ModelTypeCodec()
    some = vectors(4, 2, 64).to(dtype)
    assert torch.equal(round_trip(codec, some), some.float())
    assert codec.data_dtype(dtype) == dtype


def test_an_odd_number_cannot_be_packed() -> None:
    for codec in (Int4Codec(32), LeadingInt8Codec()):
        with pytest.raises(ConfigError, match="heads have 71: use --kv-cache-dtype int8 or none"):
            codec.data_size(71)
