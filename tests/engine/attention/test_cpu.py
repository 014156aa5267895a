"""The Numba attention against the reference: same stored bytes, same numbers, same promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from engine.attention import cpu
from engine.attention.cpu import NumbaAttention
from engine.attention.interface import AttentionMetadata
from engine.attention.reference import ReferenceAttention
from engine.errors import ConfigError
from engine.kv.key_basis import KeyBasis
from engine.kv.schemes import kv_scheme
from engine.kv.storage import PagedKVStorage
from tests.attention_case import AttentionCase

SCHEMES = ("none", "int8", "k8v4", "int4")
FOUR_BIT = ("k8v4", "int4")


def attend(
    backend: cpu.AttentionBackend,
    case: AttentionCase,
    *parts: tuple[int, int, int],
    window: int | None = None,
    layer: int = 1,
) -> torch.Tensor:
    (query, key, value), metadata = case.inputs(*parts)
    scale = case.head_dim**-0.5
    return backend.attend(layer, query, key, value, metadata, scale, window)


def stored_bytes(storage: PagedKVStorage) -> list[torch.Tensor]:
    tensors = (storage.keys.data, storage.keys.scales, storage.values.data, storage.values.scales)
    return [tensor.view(torch.uint8) for tensor in tensors if tensor is not None]


def assert_as_reference(
    case: AttentionCase, *steps: list[tuple[int, int, int]], window: int | None = None
) -> None:
    own, reference = case.storage(), case.storage()
    for parts in steps:
        actual = attend(NumbaAttention(own), case, *parts, window=window)
        expected = attend(ReferenceAttention(reference), case, *parts, window=window)
        assert actual.dtype == case.dtype
        tolerance = {} if case.dtype == torch.float32 else {"atol": 1e-2, "rtol": 1e-2}
        torch.testing.assert_close(actual, expected, **(tolerance or {"atol": 2e-6, "rtol": 1e-5}))
    for written, wanted in zip(stored_bytes(own), stored_bytes(reference), strict=True):
        assert torch.equal(written, wanted)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("heads", "head_dim"),
    [((9, 3), 64), ((4, 4), 80), ((32, 8), 96), ((8, 1), 128), ((71, 1), 64), ((2, 1), 100),
     ((6, 2), 24), ((4, 2), 8), ((3, 3), 5), ((3, 3), 6)],
)  # fmt: skip
def test_every_head_shape_gives_the_references_numbers_and_bytes(
    scheme: str, heads: tuple[int, int], head_dim: int
) -> None:
    case = AttentionCase((1, 37, 130, 64), scheme=scheme, heads=heads, head_dim=head_dim)
    if head_dim % 2 and scheme in FOUR_BIT:
        with pytest.raises(ConfigError, match=r"two numbers in a byte, and .* heads have 5"):
            case.storage()
        return
    first = [(1, 0, 20), (2, 0, 70), (3, 0, 63)]
    then = [(0, 0, 1), (1, 20, 37), (2, 70, 130), (3, 63, 64)]
    assert_as_reference(case, first, then)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("block_size", [8, 16, 32, 64, 128, 256, 512])
def test_every_block_size(scheme: str, block_size: int) -> None:
    case = AttentionCase((200, 9, 8, 121), scheme=scheme, block_size=block_size, seed=block_size)
    assert_as_reference(case, case.whole())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("window", [1, 2, 17, 64, 65, 100, 4000])
def test_sliding_windows(scheme: str, window: int) -> None:
    case = AttentionCase((300, 40), scheme=scheme, seed=window)
    assert_as_reference(case, case.whole(), window=window)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_sixteen_bit_models(scheme: str, dtype: torch.dtype) -> None:
    case = AttentionCase((100, 33), scheme=scheme, dtype=dtype)
    case.vectors[0][1][5, 0, :4] = torch.tensor([1e-7, -6e-8, 0.0, 3e-5])  # subnormal halves
    assert_as_reference(case, [(0, 0, 60)], [(0, 60, 100), (1, 0, 33)])


@pytest.mark.parametrize("seed", range(12))
def test_random_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = tuple(int(length) for length in rng.integers(1, 400, size=6))
    case = AttentionCase(
        lengths,
        scheme=("int8", *FOUR_BIT)[seed % 3],
        seed=seed,
        block_size=int(rng.choice([8, 16, 32, 512])),
    )
    done = [0] * len(lengths)
    steps = []
    while done != list(lengths):
        parts = []
        for sequence in rng.permutation(len(lengths))[: rng.integers(1, 7)].tolist():
            left = lengths[sequence] - done[sequence]
            if left:
                count = min(left, int(rng.choice([1, 7, 50, 200])))
                parts.append((sequence, done[sequence], done[sequence] + count))
                done[sequence] += count
        if parts:
            steps.append(parts)
    assert_as_reference(case, *steps)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("window", [None, 50])
def test_a_prompt_in_one_step_in_chunks_and_token_by_token_gives_the_same_bits(
    scheme: str, window: int | None
) -> None:
    case = AttentionCase((150, 90), scheme=scheme)
    whole = attend(NumbaAttention(case.storage()), case, (0, 0, 150), window=window)
    for sizes in ((64, 80, 6), (1, 16, 100, 33), (1,) * 150):
        backend, start, parts = NumbaAttention(case.storage()), 0, []
        for size in sizes:
            parts.append(attend(backend, case, (0, start, start + size), window=window))
            start += size
        assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_neighbours_and_their_order_do_not_change_a_bit(scheme: str) -> None:
    case = AttentionCase((150, 90, 1, 300), scheme=scheme)
    alone = [attend(NumbaAttention(case.storage()), case, part) for part in case.whole()]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        together = attend(
            NumbaAttention(case.storage()), case, *(case.whole()[index] for index in order)
        )
        assert torch.equal(together, torch.cat([alone[index] for index in order]))


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_the_number_of_threads_does_not_change_a_bit(scheme: str) -> None:
    case = AttentionCase((150, 90, 1, 300), scheme=scheme)
    results = []
    num_threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(attend(NumbaAttention(case.storage()), case, *case.whole()))
    finally:
        torch.set_num_threads(num_threads)
    assert torch.equal(*results)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize(
    "magnitude", [0.0, 1e-40, 1e-30, 3e-8, 1e-6, 5e-5, 1e-3, 1.0, 3e4, 1e6, 5e7, 1e18]
)
def test_extreme_sizes_are_stored_as_the_scheme_stores_them(scheme: str, magnitude: float) -> None:
    case = AttentionCase((40,), scheme=scheme)
    for vectors in case.vectors[0][1:]:
        vectors *= magnitude
    own, reference = case.storage(), case.storage()
    attend(NumbaAttention(own), case, (0, 0, 40))
    attend(ReferenceAttention(reference), case, (0, 0, 40))
    for written, wanted in zip(stored_bytes(own), stored_bytes(reference), strict=True):
        assert torch.equal(written, wanted)


def test_scores_far_from_zero_are_softened_without_overflow() -> None:
    for factor in (-1e15, -300.0, 300.0, 1e15):
        case = AttentionCase((130,), scheme="none")
        case.vectors[0][0].mul_(factor)
        own = attend(NumbaAttention(case.storage()), case, (0, 0, 130))
        expected = attend(ReferenceAttention(case.storage()), case, (0, 0, 130))
        torch.testing.assert_close(own, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_br_32_a_number_gone_wrong_stays_in_its_sequence(scheme: str, broken: float) -> None:
    case = AttentionCase((150, 90, 30), scheme=scheme)
    control = attend(NumbaAttention(case.storage()), case, *case.whole())
    for vectors in case.vectors[1][1:]:
        vectors[40, 2, 7] = broken
    storage = case.storage()
    output = attend(NumbaAttention(storage), case, *case.whole())
    rows = torch.cat([torch.arange(150), torch.arange(240, 270)])
    assert torch.equal(output[rows], control[rows])
    reference = case.storage()
    expected = attend(ReferenceAttention(reference), case, *case.whole())
    assert torch.equal(output[239].isfinite(), expected[239].isfinite())
    assert not output[239, 6:9].isfinite().all()  # the heads that share the KV head
    for written, wanted in zip(stored_bytes(storage), stored_bytes(reference), strict=True):
        assert torch.equal(written, wanted)


@pytest.mark.parametrize("head_dim", [128, 96, 64, 24, 6])
def test_a_learnt_basis_is_used_as_the_scheme_uses_it(head_dim: int) -> None:
    generator = torch.Generator().manual_seed(1)
    offsets, matrices = (
        torch.randn(2, 3, *(head_dim,) * count, generator=generator) for count in (1, 2)
    )
    # Orthogonal, so that scores are of the usual size; and sizes that differ by a power of 2.
    rotations = torch.linalg.qr(matrices).Q
    basis = KeyBasis(offsets, rotations * 4, rotations / 4)
    scheme = replace(kv_scheme("int4"), key_basis=basis)
    assert_as_reference(
        AttentionCase((70, 21), scheme=scheme, head_dim=head_dim), [(0, 0, 70), (1, 0, 21)]
    )


def test_layers_do_not_touch_each_other() -> None:
    case = AttentionCase((30,))
    storage = case.storage()
    before = [tensor[0].clone() for tensor in stored_bytes(storage)]
    attend(NumbaAttention(storage), case, (0, 0, 30), layer=1)
    after = [tensor[0] for tensor in stored_bytes(storage)]
    assert all(map(torch.equal, before, after))


def test_views_as_the_model_hands_them_over() -> None:
    case = AttentionCase((50,))
    (query, key, value), metadata = case.inputs((0, 0, 50))
    plain = attend(NumbaAttention(case.storage()), case, (0, 0, 50))
    views = (tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in (query, key, value))
    backend = NumbaAttention(case.storage())
    assert torch.equal(backend.attend(1, *views, metadata, case.head_dim**-0.5, None), plain)


def test_a_step_is_described_once_for_all_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[AttentionMetadata] = []
    original = cpu._describe_step

    def note(metadata: AttentionMetadata, heads: int) -> cpu.Step:
        described.append(metadata)
        return original(metadata, heads)

    monkeypatch.setattr(cpu, "_describe_step", note)
    case = AttentionCase((30,))
    backend = NumbaAttention(case.storage())
    for tensors, metadata in (case.inputs((0, 0, 20)), case.inputs((0, 20, 30))):
        for layer in (0, 1):
            backend.attend(layer, *tensors, metadata, 0.125, None)
    assert len(described) == 2


def test_warming_up_says_what_it_does_and_keeps_the_compiled_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    said: list[str] = []
    NumbaAttention(AttentionCase((1,)).storage()).warm_up(said.append)
    assert len(said) == 1
    assert "compiles it" in said[0]


def test_warming_up_says_when_the_compiled_kernel_cannot_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "_keep_compiled", lambda: False)
    said: list[str] = []
    NumbaAttention(AttentionCase((1,)).storage()).warm_up(said.append)
    assert len(said) == 2
    assert "--cache-dir" in said[1]
