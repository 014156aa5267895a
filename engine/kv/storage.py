"""The tensors that hold K and V in blocks. Knows slots and block ids, not who uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch

from engine.kv.codecs import EncodedVectors, VectorCodec
from engine.kv.key_basis import hadamard_basis
from engine.kv.schemes import KVScheme


class CopiedBlock(Protocol):
    """What `copy_blocks` needs of a copy."""

    @property
    def source_block_id(self) -> int: ...

    @property
    def target_block_id(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...


class StoredVectors(NamedTuple):
    """One kind (K or V) in all layers; index with a layer to get [num_blocks, ...].

    data    [num_layers, num_blocks, num_kv_heads, block_size, data_size]
    scales  [num_layers, num_blocks, num_kv_heads, block_size], float16, with one more dimension
            where a vector has several; None without scales
    """

    data: torch.Tensor
    scales: torch.Tensor | None


class KeysAndValues(NamedTuple):
    keys: (
        torch.Tensor
    )  # float32 [num_tokens, num_kv_heads, head_dim], in the space they are stored in
    values: torch.Tensor


class PagedKVStorage:
    """K and V of every layer. Slots that were never written hold anything, even NaN."""

    def __init__(
        self,
        scheme: KVScheme,
        *,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        if scheme.learns_key_basis and scheme.key_basis is None:
            basis = hadamard_basis(num_layers, num_kv_heads, head_dim, device)
            scheme = replace(scheme, key_basis=basis)
        self.scheme = scheme
        self.num_layers = num_layers
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.dtype = dtype
        shape = (num_layers, num_blocks, num_kv_heads, block_size)
        self.keys = _allocate(scheme.keys, shape, head_dim, dtype, device)
        self.values = _allocate(scheme.values, shape, head_dim, dtype, device)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors())

    @property
    def block_nbytes(self) -> int:
        """Of one block in all layers."""
        return self.nbytes // self.num_blocks

    @property
    def device(self) -> torch.device:
        return self.keys.data.device

    def write(
        self, layer_index: int, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Encode and store K and V [num_tokens, num_kv_heads, head_dim] at `slots`."""
        block_ids = torch.div(slots, self.block_size, rounding_mode="floor")
        offsets = slots - block_ids * self.block_size
        for stored, encoded in (
            (self.keys, self.scheme.encode_keys(key, layer_index)),
            (self.values, self.scheme.encode_values(value)),
        ):
            stored.data[layer_index][block_ids, :, offsets] = encoded.data.to(stored.data.dtype)
            if stored.scales is not None and encoded.scales is not None:
                stored.scales[layer_index][block_ids, :, offsets] = encoded.scales

    def read(self, layer_index: int, block_ids: torch.Tensor, num_tokens: int) -> KeysAndValues:
        """Decode the first `num_tokens` positions of a block table."""
        num_blocks = -(-num_tokens // self.block_size)
        used = block_ids[:num_blocks].long()
        keys, values = (
            codec.decode(*_first_positions(stored, layer_index, used, num_tokens))
            for codec, stored in (
                (self.scheme.keys, self.keys),
                (self.scheme.values, self.values),
            )
        )
        return KeysAndValues(keys, values)

    def copy_blocks(self, copies: Sequence[CopiedBlock]) -> None:
        """Copy the first slots of blocks, in all layers, one copy after the other."""
        for copy in copies:
            for tensor in self._tensors():
                source = tensor[:, copy.source_block_id, :, : copy.num_tokens]
                tensor[:, copy.target_block_id, :, : copy.num_tokens] = source

    def pack_blocks(self, block_ids: Sequence[int]) -> torch.Tensor:
        """All of each block, in one row of bytes: uint8 [num_blocks, block_nbytes]."""
        indices = torch.tensor(block_ids, dtype=torch.long, device=self.device)
        parts = [
            tensor.index_select(1, indices).transpose(0, 1).flatten(1).view(torch.uint8)
            for tensor in self._tensors()
        ]
        return torch.cat(parts, dim=1)

    def unpack_blocks(self, block_ids: Sequence[int], packed: torch.Tensor) -> None:
        """Put what `pack_blocks` gave into blocks; `packed` is on the same device."""
        indices = torch.tensor(block_ids, dtype=torch.long, device=self.device)
        widths = [tensor.nbytes // self.num_blocks for tensor in self._tensors()]
        parts = torch.split(packed, widths, dim=1)
        for tensor, part in zip(self._tensors(), parts, strict=True):
            values = part.contiguous().view(tensor.dtype)
            shape = (len(block_ids), self.num_layers, *tensor.shape[2:])
            tensor.index_copy_(1, indices, values.view(shape).transpose(0, 1))

    def _tensors(self) -> list[torch.Tensor]:
        tensors = (self.keys.data, self.keys.scales, self.values.data, self.values.scales)
        return [tensor for tensor in tensors if tensor is not None]


def _allocate(
    codec: VectorCodec,
    shape: tuple[int, int, int, int],
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device | str,
) -> StoredVectors:
    # Not zeroed: memory that no block uses yet is then never touched.
    data = torch.empty(
        *shape, codec.data_size(head_dim), dtype=codec.data_dtype(dtype), device=device
    )
    scales_shape = codec.scales_shape(head_dim)
    if scales_shape is None:
        return StoredVectors(data, None)
    return StoredVectors(
        data, torch.empty(*shape, *scales_shape, dtype=torch.float16, device=device)
    )


def _first_positions(
    stored: StoredVectors, layer_index: int, block_ids: torch.Tensor, num_tokens: int
) -> EncodedVectors:
    data, scales = (
        None if tensor is None else _positions(tensor[layer_index][block_ids])[:num_tokens]
        for tensor in stored
    )
    assert data is not None
    return EncodedVectors(data, scales)


def _positions(blocks: torch.Tensor) -> torch.Tensor:
    """[num_blocks, num_kv_heads, block_size, ...] as [num_positions, num_kv_heads, ...]."""
    by_position = blocks.transpose(1, 2)
    return by_position.reshape(-1, *by_position.shape[2:])
