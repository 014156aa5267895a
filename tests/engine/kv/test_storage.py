"""Blocks of K and V: what is written at a slot is read at its position, and nothing else."""

from __future__ import annotations

import pytest
import torch

from engine.batch import BlockCopy
from engine.kv.schemes import kv_scheme
from engine.kv.storage import PagedKVStorage

SCHEMES = ("none", "int8", "k8v4", "int4")


HEAD_DIM = 40  # 4-bit: a group of 32 and one of 8


def make_storage(scheme: str = "none", dtype: torch.dtype = torch.float32) -> PagedKVStorage:
    """Three layers, ten blocks of four tokens, two KV heads of 40; every slot holds NaN."""
    storage = PagedKVStorage(
        kv_scheme(scheme),
        num_layers=3,
        num_blocks=10,
        block_size=4,
        num_kv_heads=2,
        head_dim=HEAD_DIM,
        dtype=dtype,
    )
    for stored in (storage.keys, storage.values):
        (stored.data if stored.scales is None else stored.scales).fill_(torch.nan)
    return storage


def vectors(num_tokens: int, seed: int) -> torch.Tensor:
    return torch.randn(num_tokens, 2, HEAD_DIM, generator=torch.Generator().manual_seed(seed))


def slots(block_ids: list[int], start: int, end: int) -> torch.Tensor:
    return torch.tensor([block_ids[p // 4] * 4 + p % 4 for p in range(start, end)])


def test_layout_is_layers_blocks_heads_slots_head_dim() -> None:
    storage = make_storage("k8v4")
    assert storage.keys.data.shape == (3, 10, 2, 4, 40)
    assert storage.keys.scales is not None
    assert storage.keys.scales.shape == (3, 10, 2, 4)
    assert storage.values.data.shape == (3, 10, 2, 4, 20)
    assert storage.values.scales is not None
    assert storage.values.scales.shape == (3, 10, 2, 4, 3)


def test_a_vector_lies_at_its_block_head_and_offset() -> None:
    storage = make_storage()
    key, value = vectors(1, seed=1), vectors(1, seed=2)
    storage.write(1, key, value, torch.tensor([7 * 4 + 3]))
    assert torch.equal(storage.keys.data[1, 7, :, 3], key[0])
    assert torch.equal(storage.values.data[1, 7, :, 3], value[0])
    assert storage.keys.data.isfinite().sum() == key.numel()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_positions_are_read_back_through_a_scattered_table(scheme: str) -> None:
    storage = make_storage(scheme)
    table = [8, 1, 5]
    key, value = vectors(10, seed=1), vectors(10, seed=2)
    storage.write(2, key[:6], value[:6], slots(table, 0, 6))
    storage.write(2, key[6:], value[6:], slots(table, 6, 10))
    read = storage.read(2, torch.tensor(table, dtype=torch.int32), 10)
    scheme = storage.scheme
    assert torch.equal(read.keys, scheme.keys.decode(*scheme.encode_keys(key, 2)))
    assert torch.equal(read.values, scheme.values.decode(*scheme.encode_values(value)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_slots_never_written_are_never_read(scheme: str) -> None:
    storage = make_storage(scheme)
    storage.write(0, vectors(5, seed=1), vectors(5, seed=2), slots([3, 4], 0, 5))
    read = storage.read(0, torch.tensor([3, 4, 0, 0]), 5)
    assert read.keys.shape == (5, 2, HEAD_DIM)
    assert read.keys.isfinite().all()
    assert read.values.isfinite().all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_copying_takes_the_first_slots_in_every_layer_and_no_more(scheme: str) -> None:
    storage = make_storage(scheme)
    for layer in range(3):
        storage.write(layer, vectors(4, seed=layer), vectors(4, seed=10 + layer), slots([2], 0, 4))
    storage.copy_blocks([BlockCopy(2, 9, 3)])
    for layer in range(3):
        source = storage.read(layer, torch.tensor([2]), 3)
        target = storage.read(layer, torch.tensor([9]), 4)
        assert torch.equal(target.keys[:3], source.keys)
        assert torch.equal(target.values[:3], source.values)
        assert target.keys[3].isnan().all()


def test_copies_happen_in_order() -> None:
    storage = make_storage()
    key = vectors(2, seed=1)
    storage.write(0, key, key, slots([0], 0, 2))
    storage.copy_blocks([BlockCopy(0, 1, 2), BlockCopy(1, 2, 2)])
    assert torch.equal(storage.read(0, torch.tensor([2]), 2).keys, key)


@pytest.mark.parametrize(
    ("scheme", "dtype", "bytes_per_vector"),
    [
        ("none", torch.float32, 160),
        ("none", torch.bfloat16, 80),
        ("int8", torch.float32, 42),
        ("k8v4", torch.float32, 34),
        ("int4", torch.float32, 24),
    ],
)
def test_nbytes_is_what_the_scheme_says(
    scheme: str, dtype: torch.dtype, bytes_per_vector: int
) -> None:
    """Of K and V on average."""
    storage = make_storage(scheme, dtype)
    assert storage.nbytes == 2 * 3 * 10 * 2 * 4 * bytes_per_vector
    assert storage.nbytes == 40 * storage.scheme.bytes_per_token(3, 2, HEAD_DIM, dtype)
