"""How fast decode attention reads the KV cache, beside a plain read of memory and PyTorch's SDPA.

    python -m bench.kernels --sequences 16 --context 1024
    python -m bench.kernels --block-sizes 8 16 32 64 128 256 512

The calls take turns, so that the medians can be compared on a machine that others use; the best of
a call's repetitions says most about the code.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.attention.reference import ReferenceAttention
from engine.kv.schemes import KV_SCHEMES, kv_scheme
from engine.kv.storage import PagedKVStorage
from engine.model.threads import prepare_threads


class Shape(NamedTuple):
    num_sequences: int
    context: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


class Case(NamedTuple):
    name: str
    call: Callable[[], torch.Tensor]
    num_bytes: int  # of K and V that the call reads


class Measurement(NamedTuple):
    case: Case
    best_s: float
    median_s: float


def main() -> None:
    arguments = _parse_arguments()
    prepare_threads(arguments.cache_dir.expanduser())
    shape = Shape(
        arguments.sequences,
        arguments.context,
        arguments.heads,
        arguments.kv_heads,
        arguments.head_dim,
    )
    queries = (1, min(256, shape.context))
    cases = [_read_case(), _sdpa_case(shape)]
    cases += [
        _backend_case("numba", scheme, shape, num_queries, block_size)
        for num_queries in queries
        for block_size in arguments.block_sizes
        for scheme in arguments.schemes
    ]
    results = _measure(cases, arguments.repetitions)
    if arguments.reference:
        slow = [_backend_case("reference", "int8", shape, count, 16) for count in queries]
        results += _measure(slow, 3)
    _print(results, shape)


def _print(results: Sequence[Measurement], shape: Shape) -> None:
    print(f"{'one layer':<36}{'median ms':>12}{'best ms':>10}{'GB/s of K and V':>18}")
    for case, best_s, median_s in results:
        speed = case.num_bytes / best_s / 1e9
        print(f"{case.name:<36}{median_s * 1e3:>12.3f}{best_s * 1e3:>10.3f}{speed:>18.2f}")
    print(
        json.dumps(
            {
                "bench": "kernels",
                "threads": torch.get_num_threads(),
                **shape._asdict(),
                "median_ms": {
                    result.case.name: round(result.median_s * 1e3, 3) for result in results
                },
                "best_ms": {result.case.name: round(result.best_s * 1e3, 3) for result in results},
            }
        )
    )


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--block-sizes", type=int, nargs="+", default=[16])
    names = [scheme.name for scheme in KV_SCHEMES]
    parser.add_argument("--schemes", nargs="+", choices=names, default=names)
    parser.add_argument("--reference", action="store_true", help="time plain PyTorch, too")
    parser.add_argument("--cache-dir", type=Path, default=Path("~/.cache/hearth"))
    return parser.parse_args()


def _measure(cases: Sequence[Case], repetitions: int) -> list[Measurement]:
    times_s: list[list[float]] = [[] for _ in cases]
    for case in cases:
        case.call()  # compiles, and touches the memory
    for _ in range(repetitions):
        for case, times in zip(cases, times_s, strict=True):
            start_s = time.perf_counter()
            case.call()
            times.append(time.perf_counter() - start_s)
    return [
        Measurement(case, min(times), statistics.median(times))
        for case, times in zip(cases, times_s, strict=True)
    ]


def _read_case() -> Case:
    numbers = torch.ones(64 * 2**20)
    return Case("plain read of 256 MiB", numbers.sum, numbers.nbytes)


def _sdpa_case(shape: Shape) -> Case:
    keys = torch.randn(shape.num_sequences, shape.num_kv_heads, shape.context, shape.head_dim)
    values = torch.randn_like(keys)
    query = torch.randn(shape.num_sequences, shape.num_heads, 1, shape.head_dim)

    def attend() -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

    return Case("decode, SDPA, contiguous", attend, 2 * keys.nbytes)


def _backend_case(name: str, scheme: str, shape: Shape, num_queries: int, block_size: int) -> Case:
    """Decode of all sequences, or the last `num_queries` tokens of one prompt."""
    if num_queries > 1:
        shape = shape._replace(num_sequences=1)
    storage, metadata = _filled_storage(scheme, shape, num_queries, block_size)
    backend = _make_backend(name, storage)
    num_tokens = shape.num_sequences * num_queries
    query = torch.randn(num_tokens, shape.num_heads, shape.head_dim)
    key, value = torch.randn(2, num_tokens, shape.num_kv_heads, shape.head_dim)

    def attend() -> torch.Tensor:
        return backend.attend(0, query, key, value, metadata, shape.head_dim**-0.5, None)

    kind = "decode" if num_queries == 1 else f"prefill {num_queries}"
    return Case(f"{kind}, {name}, {scheme}, blocks of {block_size}", attend, storage.nbytes)


def _filled_storage(
    scheme: str, shape: Shape, num_queries: int, block_size: int
) -> tuple[PagedKVStorage, AttentionMetadata]:
    blocks_each = -(-shape.context // block_size)
    storage = PagedKVStorage(
        kv_scheme(scheme),
        num_layers=1,
        num_blocks=shape.num_sequences * blocks_each,
        block_size=block_size,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        dtype=torch.float32,
    )
    tables = torch.randperm(storage.num_blocks).view(shape.num_sequences, blocks_each)
    slots = tables[:, :, None] * block_size + torch.arange(block_size)
    slots = slots.view(shape.num_sequences, -1)[:, : shape.context]
    vectors = torch.randn(2, slots.numel(), shape.num_kv_heads, shape.head_dim)
    storage.write(0, vectors[0], vectors[1], slots.flatten())
    metadata = AttentionMetadata(
        slot_mapping=slots[:, -num_queries:].flatten(),
        query_starts=torch.arange(shape.num_sequences + 1, dtype=torch.int32) * num_queries,
        context_lengths=torch.full((shape.num_sequences,), shape.context, dtype=torch.int32),
        block_tables=tables.int(),
    )
    return storage, metadata


def _make_backend(name: str, storage: PagedKVStorage) -> AttentionBackend:
    if name == "reference":
        return ReferenceAttention(storage)
    # Imported here: Numba reads its variables once.
    from engine.attention.cpu import NumbaAttention

    return NumbaAttention(storage)


if __name__ == "__main__":
    main()
