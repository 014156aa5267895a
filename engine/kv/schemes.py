"""How K and V vectors are stored: formats, their sizes and their arithmetic. Knows no blocks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch

from engine.errors import ConfigError

_INT8_MAX = 127
_FLOAT16_MAX = 65504.0


class EncodedVectors(NamedTuple):
    data: torch.Tensor  # [..., head_dim]
    scales: torch.Tensor | None  # float16 [...]


class KVScheme(ABC):
    """One storage format. Stored vectors may be rotated: see `rotate` and `rotate_back`."""

    name: str
    has_scales: bool

    @abstractmethod
    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        """The type of the stored numbers."""

    @abstractmethod
    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        """Vectors [..., head_dim] as they are stored; each vector by itself."""

    @abstractmethod
    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        """Stored vectors as float32, rotated as they are."""

    def rotate(self, queries: torch.Tensor) -> torch.Tensor:
        """Bring float32 queries [..., head_dim] into the space of the stored keys."""
        return queries

    def rotate_back(self, outputs: torch.Tensor) -> torch.Tensor:
        """Bring float32 sums of stored values [..., head_dim] back into the model's space."""
        return outputs

    def bytes_per_vector(self, head_dim: int, model_dtype: torch.dtype) -> int:
        data_bytes = head_dim * self.data_dtype(model_dtype).itemsize
        return data_bytes + (torch.float16.itemsize if self.has_scales else 0)

    def bytes_per_token(
        self, num_layers: int, num_kv_heads: int, head_dim: int, model_dtype: torch.dtype
    ) -> int:
        """Bytes for K and V of one token in all layers."""
        return 2 * num_layers * num_kv_heads * self.bytes_per_vector(head_dim, model_dtype)


class ModelTypeScheme(KVScheme):
    """`none`: the model's own type, unchanged."""

    name = "none"
    has_scales = False

    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        return model_dtype

    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        return EncodedVectors(vectors, None)

    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        return data.float()


class Int8Scheme(KVScheme):
    """`int8`: rotated by a Hadamard transform, then symmetric absmax with one float16 scale.

    The rotation spreads outliers over the vector. The scale is rounded to float16 before it
    divides, so reading uses the very number that writing used. A vector that holds NaN or infinity
    gets the scale NaN: what is wrong stays visible.
    """

    name = "int8"
    has_scales = True

    def data_dtype(self, model_dtype: torch.dtype) -> torch.dtype:
        return torch.int8

    def encode(self, vectors: torch.Tensor) -> EncodedVectors:
        rotated = hadamard(vectors.float())
        largest = rotated.abs().amax(dim=-1)
        scales = (largest / _INT8_MAX).clamp(max=_FLOAT16_MAX).half()
        scales = torch.where(largest.isfinite(), scales, torch.nan)
        divisors = torch.where(scales == 0, 1.0, scales.float())
        data = (rotated / divisors[..., None]).round().clamp(-_INT8_MAX, _INT8_MAX)
        # A scale that underflowed to 0 stands for a vector of zeros.
        data = torch.where((scales == 0)[..., None], 0.0, data).nan_to_num()
        return EncodedVectors(data.to(torch.int8), scales)

    def decode(self, data: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        assert scales is not None
        return data.float() * scales.float()[..., None]

    def rotate(self, queries: torch.Tensor) -> torch.Tensor:
        return hadamard(queries)

    def rotate_back(self, outputs: torch.Tensor) -> torch.Tensor:
        return hadamard(outputs)  # symmetric and orthogonal: its own inverse


KV_SCHEMES: tuple[KVScheme, ...] = (ModelTypeScheme(), Int8Scheme())


def kv_scheme(name: str) -> KVScheme:
    """The scheme called `name`.

    Raises:
        ConfigError: there is no such scheme.
    """
    for scheme in KV_SCHEMES:
        if scheme.name == name:
            return scheme
    raise ConfigError(f"There is no KV cache format {name!r}: use int8 or none.")


def hadamard_block(head_dim: int) -> int:
    """The largest power of two that divides `head_dim` (96: 32, three blocks)."""
    return head_dim & -head_dim


def hadamard(vectors: torch.Tensor) -> torch.Tensor:
    """Orthonormal Walsh-Hadamard transform of float32 [..., head_dim], block by block.

    Additions only, in a fixed order, and one product by 1/sqrt(block) at the end: a vector's result
    never depends on how many others are transformed with it.
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
