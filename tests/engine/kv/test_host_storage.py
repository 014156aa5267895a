"""Blocks go to slots and bytes and come back as they were, in every tensor and layer."""

from __future__ import annotations

import pytest
import torch

from engine.kv.block_moves import Fill, Load, Save
from engine.kv.host_storage import HostStorage
from engine.kv.schemes import kv_scheme
from engine.kv.storage import PagedKVStorage


def make_storage(scheme: str) -> PagedKVStorage:
    """Three layers, ten blocks of four tokens; every byte is another."""
    storage = PagedKVStorage(
        kv_scheme(scheme),
        num_layers=3,
        num_blocks=10,
        block_size=4,
        num_kv_heads=2,
        head_dim=8,
        dtype=torch.float32,
    )
    generator = torch.Generator().manual_seed(1)
    for tensor in storage._tensors():
        shape = (*tensor.shape[:-1], tensor.shape[-1] * tensor.itemsize)
        noise = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        tensor.copy_(noise.view(tensor.dtype))
    return storage


def content(storage: PagedKVStorage, block_id: int) -> list[bytes]:
    """Of each tensor's part of a block, as it lies there."""
    return [tensor[:, block_id].contiguous().numpy().tobytes() for tensor in storage._tensors()]


@pytest.mark.parametrize("scheme", ["none", "int8"])
def test_saved_blocks_are_loaded_elsewhere_unchanged(scheme: str) -> None:
    storage = make_storage(scheme)
    host = HostStorage(storage, 5)
    before = {block_id: content(storage, block_id) for block_id in range(10)}
    host.save([Save(7, 4), Save(2, 0), Save(3, 1)])
    storage.copy_blocks([])
    host.load([Load(0, 9), Load(4, 1)])
    assert content(storage, 9) == before[2]
    assert content(storage, 1) == before[7]
    for block_id in (0, 2, 3, 4, 5, 6, 7, 8):
        assert content(storage, block_id) == before[block_id]


@pytest.mark.parametrize("scheme", ["none", "int8"])
def test_bytes_of_a_slot_and_of_a_block_are_the_same_and_fill_another(scheme: str) -> None:
    storage = make_storage(scheme)
    host = HostStorage(storage, 5)
    host.save([Save(6, 2)])
    (payload,) = host.read_slots([2])
    assert [payload] == host.read_blocks([6])
    assert len(payload) == host.block_nbytes == storage.nbytes // 10
    host.fill_slots([Fill(3, payload)])
    host.load([Load(3, 0)])
    assert content(storage, 0) == content(storage, 6)


def test_a_save_is_of_the_moment_it_is_asked_for() -> None:
    storage = make_storage("int8")
    host = HostStorage(storage, 2)
    before = content(storage, 5)
    host.save([Save(5, 0)])
    storage.keys.data[:, 5] = 0
    host.load([Load(0, 5)])
    assert content(storage, 5) == before
