"""The formats of the KV cache by name: how keys and values are stored, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.errors import ConfigError
from engine.kv.codecs import (
    EncodedVectors,
    Int4Codec,
    Int8Codec,
    LeadingInt8Codec,
    ModelTypeCodec,
    VectorCodec,
)
from engine.kv.hadamard import hadamard
from engine.kv.key_basis import KeyBasis


@dataclass(frozen=True, slots=True, eq=False)
class KVScheme:
    """A codec for keys and one for values; both get rotated vectors, or neither.

    Attention happens in the rotated space: the product of two rotated vectors is that of the
    vectors, so only queries are rotated on the way in, and sums of values back on the way out.

    Keys can have a basis of their own instead, which is learnt from the model. Until it is, a
    scheme that learns one rotates keys, too.
    """

    name: str
    keys: VectorCodec
    values: VectorCodec
    learns_key_basis: bool = False
    key_basis: KeyBasis | None = None

    @property
    def is_quantized(self) -> bool:
        """Whether stored numbers differ from what they were; such schemes also rotate."""
        return self.keys.is_quantized

    def encode_keys(self, keys: torch.Tensor, layer_index: int) -> EncodedVectors:
        """Keys [..., num_kv_heads, head_dim] as they are stored."""
        if self.key_basis is not None:
            return self.keys.encode(self.key_basis.transform_keys(keys, layer_index))
        return self.keys.encode(self._rotated(keys))

    def encode_values(self, values: torch.Tensor) -> EncodedVectors:
        return self.values.encode(self._rotated(values))

    def prepare_queries(self, queries: torch.Tensor, layer_index: int) -> torch.Tensor:
        """Bring float32 [..., num_heads, head_dim] into the space of the stored keys."""
        if self.key_basis is not None:
            return self.key_basis.transform_queries(queries, layer_index)
        return self._rotated(queries)

    def rotate_back(self, outputs: torch.Tensor) -> torch.Tensor:
        """Bring float32 sums of stored values [..., head_dim] back into the model's space."""
        return self._rotated(outputs)  # its own inverse

    def bytes_per_token(
        self, num_layers: int, num_kv_heads: int, head_dim: int, model_dtype: torch.dtype
    ) -> int:
        """Bytes for K and V of one token in all layers.

        Raises:
            ConfigError: vectors of this size cannot be stored so.
        """
        key_bytes = self.keys.bytes_per_vector(head_dim, model_dtype)
        value_bytes = self.values.bytes_per_vector(head_dim, model_dtype)
        return num_layers * num_kv_heads * (key_bytes + value_bytes)

    def _rotated(self, vectors: torch.Tensor) -> torch.Tensor:
        return hadamard(vectors.float()) if self.is_quantized else vectors


KV_SCHEMES = (
    KVScheme("none", ModelTypeCodec(), ModelTypeCodec()),
    KVScheme("int8", Int8Codec(), Int8Codec()),
    KVScheme("k8v4", Int8Codec(), Int4Codec(group_size=16)),
    KVScheme("int4", LeadingInt8Codec(), Int4Codec(group_size=64), learns_key_basis=True),
)


def kv_scheme(name: str) -> KVScheme:
    """The scheme called `name`.

    Raises:
        ConfigError: there is no such scheme.
    """
    for scheme in KV_SCHEMES:
        if scheme.name == name:
            return scheme
    names = ", ".join(scheme.name for scheme in KV_SCHEMES)
    raise ConfigError(f"There is no KV cache format {name!r}: use one of {names}.")
