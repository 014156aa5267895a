"""The basis that keys are stored in: other coordinates, in which fewer bits do."""

from __future__ import annotations

from typing import NamedTuple

import torch

from engine.kv.hadamard import hadamard


class KeyBasis(NamedTuple):
    """Where a key is measured from and along which axes, for each layer and KV head; float32.

    A key k is stored as (k - offset) A, a query q is read as q B with B the transposed inverse of
    A. Their product is q·(k - offset): a query's scores all shift alike, so its softmax stays.
    """

    offsets: torch.Tensor  # [num_layers, num_kv_heads, head_dim]
    keys_into: torch.Tensor  # A: [num_layers, num_kv_heads, head_dim, head_dim]
    queries_into: torch.Tensor  # B

    def transform_keys(self, keys: torch.Tensor, layer_index: int) -> torch.Tensor:
        """Keys [..., num_kv_heads, head_dim] in this basis."""
        centered = keys.float() - self.offsets[layer_index]
        return transform(centered, self.keys_into[layer_index])

    def transform_queries(self, queries: torch.Tensor, layer_index: int) -> torch.Tensor:
        """Queries [..., num_heads, head_dim]; those that share a KV head lie together."""
        matrices = self.queries_into[layer_index]
        num_shared = queries.shape[-2] // matrices.shape[0]
        return transform(queries.float(), matrices.repeat_interleave(num_shared, dim=0))


def hadamard_basis(
    num_layers: int, num_kv_heads: int, head_dim: int, device: torch.device | str = "cpu"
) -> KeyBasis:
    """Nothing learnt: no offset, and the rotation of all the other vectors."""
    shape = (num_layers, num_kv_heads, head_dim, head_dim)
    rotation = hadamard(torch.eye(head_dim, device=device)).expand(shape).contiguous()
    return KeyBasis(torch.zeros(shape[:-1], device=device), rotation, rotation)


def transform(vectors: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Each head's vectors [..., num_heads, d] times its matrix [num_heads, d, d], float32.

    One chain of products and sums in the order of d, each rounded: a vector's bits never depend
    on how many others are transformed with it, and every back end can repeat them.
    """
    result = torch.zeros_like(vectors)
    for index in range(vectors.shape[-1]):
        result += vectors[..., index : index + 1] * matrices[:, index]
    return result
