"""The formats of the KV cache by name: how keys and values are stored, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.errors import ConfigError
from engine.kv.codecs import EncodedVectors, Int4Codec, Int8Codec, ModelTypeCodec, VectorCodec
from engine.kv.hadamard import hadamard


@dataclass(frozen=True, slots=True, eq=False)
class KVScheme:
    """A codec for keys and one for values; both get rotated vectors, or neither.

    Attention happens in the rotated space: the product of two rotated vectors is that of the
    vectors, so only queries are rotated on the way in, and sums of values back on the way out.

    `key_offsets` are subtracted from a layer's keys before they are rotated: float32
    [num_layers, num_kv_heads, head_dim]. That shifts the scores of a query all alike.
    """

    name: str
    keys: VectorCodec
    values: VectorCodec
    centers_keys: bool = False  # it pays to learn key offsets
    key_offsets: torch.Tensor | None = None

    @property
    def is_quantized(self) -> bool:
        """Whether stored numbers differ from what they were; such schemes also rotate."""
        return self.keys.is_quantized

    def encode_keys(self, keys: torch.Tensor, layer_index: int) -> EncodedVectors:
        """Keys [..., num_kv_heads, head_dim] as they are stored."""
        if self.key_offsets is not None:
            keys = keys.float() - self.key_offsets[layer_index]
        return self.keys.encode(self._prepared(keys))

    def encode_values(self, values: torch.Tensor) -> EncodedVectors:
        return self.values.encode(self._prepared(values))

    def rotate(self, vectors: torch.Tensor) -> torch.Tensor:
        """Bring float32 queries [..., head_dim] into the space of the stored keys."""
        return hadamard(vectors) if self.is_quantized else vectors

    def rotate_back(self, outputs: torch.Tensor) -> torch.Tensor:
        """Bring float32 sums of stored values [..., head_dim] back into the model's space."""
        return self.rotate(outputs)  # its own inverse

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

    def _prepared(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.rotate(vectors.float()) if self.is_quantized else vectors


KV_SCHEMES = (
    KVScheme("none", ModelTypeCodec(), ModelTypeCodec()),
    KVScheme("int8", Int8Codec(), Int8Codec()),
    KVScheme("k8v4", Int8Codec(), Int4Codec(16)),
    KVScheme("int4", Int4Codec(32), Int4Codec(32), centers_keys=True),
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
