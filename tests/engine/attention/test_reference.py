"""The reference attention against PyTorch's own, and its promises about what it reads."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from engine.attention.interface import AttentionMetadata
from engine.attention.reference import ReferenceAttention
from engine.kv.schemes import kv_scheme
from engine.kv.storage import PagedKVStorage

BLOCK_SIZE = 4
HEAD_DIM = 24
SCALE = HEAD_DIM**-0.5


def make_storage(scheme: str, dtype: torch.dtype = torch.float32) -> PagedKVStorage:
    """Two layers, 40 blocks, two KV heads; every slot holds NaN."""
    storage = PagedKVStorage(
        kv_scheme(scheme),
        num_layers=2,
        num_blocks=40,
        block_size=BLOCK_SIZE,
        num_kv_heads=2,
        head_dim=HEAD_DIM,
        dtype=dtype,
    )
    for stored in (storage.keys, storage.values):
        (stored.data if stored.scales is None else stored.scales).fill_(torch.nan)
    return storage


def metadata(*parts: tuple[list[int], int, int]) -> AttentionMetadata:
    """Each part: a sequence's block table, and the positions [start, end) it computes."""
    slots = [
        table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE
        for table, start, end in parts
        for p in range(start, end)
    ]
    lengths = [end - start for _, start, end in parts]
    width = max(len(table) for table, _, _ in parts)
    return AttentionMetadata(
        slot_mapping=torch.tensor(slots),
        query_starts=torch.tensor([0, *lengths]).cumsum(0).int(),
        context_lengths=torch.tensor([end for _, _, end in parts], dtype=torch.int32),
        block_tables=torch.tensor(
            [table + [0] * (width - len(table)) for table, _, _ in parts], dtype=torch.int32
        ),
    )


def random_qkv(num_tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    heads = (6, 2, 2)
    query, key, value = (
        torch.randn(num_tokens, count, HEAD_DIM, generator=generator) for count in heads
    )
    return query, key, value


def expected_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None
) -> torch.Tensor:
    length = len(query)
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    if window is not None:
        visible &= torch.ones(length, length, dtype=torch.bool).triu(1 - window)
    output = functional.scaled_dot_product_attention(
        *(tensor.transpose(0, 1) for tensor in (query, key, value)), visible, enable_gqa=True
    )
    return output.transpose(0, 1)


def through_storage(
    storage: PagedKVStorage, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What vectors are after a round trip, in the model's own space."""
    scheme = storage.scheme
    return (
        scheme.rotate_back(scheme.keys.decode(*scheme.encode_keys(key, 0))),
        scheme.rotate_back(scheme.values.decode(*scheme.encode_values(value))),
    )


@pytest.mark.parametrize("scheme", ["none", "int8", "k8v4", "int4"])
@pytest.mark.parametrize("window", [None, 5, 1, 100])
def test_a_whole_prompt_equals_pytorch(scheme: str, window: int | None) -> None:
    storage = make_storage(scheme)
    query, key, value = random_qkv(19, seed=1)
    output = ReferenceAttention(storage).attend(
        1, query, key, value, metadata(([7, 3, 30, 12, 5], 0, 19)), SCALE, window
    )
    stored_key, stored_value = through_storage(storage, key, value)
    torch.testing.assert_close(output, expected_attention(query, stored_key, stored_value, window))


@pytest.mark.parametrize("scheme", ["none", "int8", "k8v4", "int4"])
@pytest.mark.parametrize("window", [None, 6])
def test_chunks_of_several_sequences_equal_each_whole(scheme: str, window: int | None) -> None:
    storage = make_storage(scheme)
    attention = ReferenceAttention(storage)
    first, second = random_qkv(17, seed=1), random_qkv(9, seed=2)
    tables = ([4, 9, 2, 20, 33], [11, 8, 1])
    outputs: list[list[torch.Tensor]] = [[], []]
    for (a, b), (c, d) in (((0, 10), (0, 3)), ((10, 16), (3, 8)), ((16, 17), (8, 9))):
        packed = (torch.cat((x[a:b], y[c:d])) for x, y in zip(first, second, strict=True))
        parts = metadata((tables[0], a, b), (tables[1], c, d))
        output = attention.attend(0, *packed, parts, SCALE, window)
        outputs[0].append(output[: b - a])
        outputs[1].append(output[b - a :])
    for (query, key, value), chunks in zip((first, second), outputs, strict=True):
        stored_key, stored_value = through_storage(storage, key, value)
        expected = expected_attention(query, stored_key, stored_value, window)
        torch.testing.assert_close(torch.cat(chunks), expected)


def test_a_shared_prefix_is_read_from_the_other_sequence_s_blocks() -> None:
    storage = make_storage("none")
    attention = ReferenceAttention(storage)
    query, key, value = random_qkv(12, seed=3)
    whole = attention.attend(0, query, key, value, metadata(([1, 2, 3], 0, 12)), SCALE, None)
    tail = slice(8, 12)
    output = attention.attend(
        0, query[tail], key[tail], value[tail], metadata(([1, 2, 6], 8, 12)), SCALE, None
    )
    torch.testing.assert_close(output, whole[tail])


def test_a_broken_neighbour_stays_alone() -> None:
    storage = make_storage("int8")
    query, key, value = random_qkv(10, seed=4)
    key[:5] = torch.nan
    output = ReferenceAttention(storage).attend(
        0, query, key, value, metadata(([1, 2], 0, 5), ([3, 4], 0, 5)), SCALE, None
    )
    assert output[:5].isnan().all()
    assert output[5:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_output_has_the_query_s_type(dtype: torch.dtype) -> None:
    storage = make_storage("none", dtype)
    query, key, value = (tensor.to(dtype) for tensor in random_qkv(6, seed=5))
    output = ReferenceAttention(storage).attend(
        0, query, key, value, metadata(([1, 2], 0, 6)), SCALE, None
    )
    assert output.dtype == dtype
    expected = expected_attention(query.float(), key.float(), value.float(), None)
    torch.testing.assert_close(output.float(), expected, atol=1e-2, rtol=1e-2)
