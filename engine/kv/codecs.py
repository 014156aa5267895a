"""How the numbers of one K or V vector are stored. Knows no blocks, and nothing of rotations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch.nn import functional

from engine.errors import ConfigError

_INT8_MAX = 127
_FLOAT16_MAX = 65504.0
_MIN_GROUP_SIZE = 16


class EncodedVectors(NamedTuple):
    data: torch.Tensor  # [..., data_size]
    scales: torch.Tensor | None  # float16 [..., *scales_shape]


class VectorCodec(ABC):
    """Each vector by itself: what is stored of one never depends on the others."""

    is_quantized = True

    @abstractmethod
    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        """The type of the stored numbers."""

    def data_size(self, head_dim: int) -> int:
        """How many numbers of that type a vector takes.

        Raises:
            ConfigError: vectors of this size cannot be stored so.
        """
        return head_dim

    @abstractmethod
    def scales_shape(self, head_dim: int) -> tuple[int, ...] | None:
        """Of a vector's scales, float16: () for a single one; None without scales."""

    @abstractmethod
    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        """Vectors [..., head_dim] as they are stored."""

    @abstractmethod
    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        """Stored vectors as float32 [..., head_dim]."""

    def bytes_per_vector(self, head_dim: int, model_dtype: torch.dtype) -> int:
        data_bytes = self.data_size(head_dim) * self.data_dtype(model_dtype).itemsize
        shape = self.scales_shape(head_dim)
        num_scales = 0 if shape is None else torch.Size(shape).numel()
        return data_bytes + num_scales * torch.float16.itemsize


class ModelTypeCodec(VectorCodec):
    """The model's own type, unchanged."""

    is_quantized = False

    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        return model_dtype

    def scales_shape(self, head_dim: int) -> None:
        return None

    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        return EncodedVectors(vectors, None)

    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        return data.float()


class Int8Codec(VectorCodec):
    """Symmetric absmax with one float16 scale a vector.

    The scale is rounded to float16 before it divides, so reading uses the very number that writing
    used. A vector that holds NaN or infinity gets the scale NaN: what is wrong stays visible. A
    scale that underflows to 0 stands for a vector of zeros.
    """

    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        return torch.int8

    def scales_shape(self, head_dim: int) -> tuple[int, ...]:
        return ()

    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        scales = _half_scales(vectors.abs().amax(dim=-1) / _INT8_MAX)
        usable = (scales > 0)[..., None]
        divisors = torch.where(usable, scales.float()[..., None], 1.0)
        data = (vectors / divisors).round().clamp(-_INT8_MAX, _INT8_MAX)
        return EncodedVectors(torch.where(usable, data, 0.0).to(torch.int8), scales)

    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        assert scales is not None
        return data.float() * scales.float()[..., None]


class Int4Codec(VectorCodec):
    """Groups of a vector's numbers, each with a float16 scale that has a sign, as in llama.cpp's
    Q4_0: the group's number farthest from zero becomes level -8, so all of -8 ... 7 are used.

    Bad numbers and underflow are handled as in Int8Codec, group by group. The last group is
    shorter where the group size does not divide head_dim. Byte i holds number i of the vector in
    its low half, and number i + head_dim / 2 in its high half, both plus 8.
    """

    LOWEST, HIGHEST = -8, 7

    def __init__(self, group_size: int) -> None:
        assert group_size >= _MIN_GROUP_SIZE, (
            "a kernel's vector of 16 numbers meets two groups at most"
        )
        assert group_size & (group_size - 1) == 0, "a power of two: kernels divide by shifting"
        self.group_size = group_size

    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        return torch.uint8

    def data_size(self, head_dim: int) -> int:
        if head_dim % 2:
            raise ConfigError(
                "4-bit KV formats store two numbers in a byte, and this model's heads have "
                f"{head_dim}: use --kv-cache-dtype int8 or none."
            )
        return head_dim // 2

    def scales_shape(self, head_dim: int) -> tuple[int, ...]:
        return (-(-head_dim // self.group_size),)

    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        groups = self._groups(vectors)
        highest, lowest = groups.amax(dim=-1), groups.amin(dim=-1)
        extremes = torch.where(highest >= -lowest, highest, lowest)
        scales = _half_scales(extremes / self.LOWEST)
        usable = (scales.abs() > 0)[..., None]
        divisors = torch.where(usable, scales.float()[..., None], 1.0)
        levels = (groups / divisors).round().clamp(self.LOWEST, self.HIGHEST)
        levels = (torch.where(usable, levels, 0.0) - self.LOWEST).to(torch.uint8)
        low, high = levels.flatten(-2)[..., : vectors.shape[-1]].chunk(2, dim=-1)
        return EncodedVectors(low | (high << 4), scales)

    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        assert scales is not None
        levels = torch.cat((data & 15, data >> 4), dim=-1).float() + self.LOWEST
        groups = self._groups(levels) * scales.float()[..., None]
        return groups.flatten(-2)[..., : levels.shape[-1]]

    def _groups(self, vectors: torch.Tensor) -> torch.Tensor:
        """[..., head_dim] as [..., num_groups, group_size], filled up with zeros."""
        missing = -vectors.shape[-1] % self.group_size
        return functional.pad(vectors, (0, missing)).view(*vectors.shape[:-1], -1, self.group_size)


class LeadingInt8Codec(VectorCodec):
    """The first eighth of a vector's numbers as in Int8Codec, then the others as in Int4Codec.

    For vectors whose first numbers matter most. The leading numbers have a scale, and the others
    have one. They are at least two and an even number, so that the others fill whole bytes.
    """

    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        return torch.uint8

    def num_leading(self, head_dim: int) -> int:
        return max(2, head_dim // 16 * 2)

    def data_size(self, head_dim: int) -> int:
        return Int4Codec(_MIN_GROUP_SIZE).data_size(head_dim) + self.num_leading(head_dim) // 2

    def scales_shape(self, head_dim: int) -> tuple[int, ...]:
        return (2,)

    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        num_leading = self.num_leading(vectors.shape[-1])
        first, others = vectors[..., :num_leading], vectors[..., num_leading:]
        leading = Int8Codec().encode(first)
        rest = _codec_of_one_group(others.shape[-1]).encode(others)
        assert leading.scales is not None
        assert rest.scales is not None
        data = torch.cat((leading.data.view(torch.uint8), rest.data), dim=-1)
        return EncodedVectors(data, torch.cat((leading.scales[..., None], rest.scales), dim=-1))

    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        assert scales is not None
        # Of 16 a + b numbers 2 a lead, and they take 9 a + b / 2 bytes.
        num_leading = self.num_leading(data.shape[-1] // 9 * 16)
        first, others = data[..., :num_leading], data[..., num_leading:]
        leading = Int8Codec().decode(first.view(torch.int8), scales[..., 0])
        rest = _codec_of_one_group(2 * others.shape[-1]).decode(others, scales[..., 1:])
        return torch.cat((leading, rest), dim=-1)


def _codec_of_one_group(size: int) -> Int4Codec:
    return Int4Codec(max(_MIN_GROUP_SIZE, 1 << (size - 1).bit_length()))


def _half_scales(scales: torch.Tensor) -> torch.Tensor:
    """Rounded to float16 as they are stored; NaN for what is no finite number, one kind of 0."""
    rounded = scales.clamp(-_FLOAT16_MAX, _FLOAT16_MAX).half()
    rounded = torch.where(rounded == 0, 0.0, rounded)
    return torch.where(scales.isfinite(), rounded, torch.nan)
