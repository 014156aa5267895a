"""How fast decode attention reads the KV cache, beside a plain read of memory and PyTorch's SDPA.

    python -m bench.kernels --sequences 16 --context 1024

Every figure is the best of the repetitions: on a machine that others use, that is the one that says
most about the code.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.attention.reference import ReferenceAttention
from engine.kv.schemes import kv_scheme
from engine.kv.storage import PagedKVStorage
from engine.model.threads import prepare_threads

_BLOCK_SIZE = 16


class Shape(NamedTuple):
    num_sequences: int
    context: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


class Measurement(NamedTuple):
    name: str
    milliseconds: float
    gigabytes_per_s: float


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
    repetitions = arguments.repetitions
    results = [_measure_read(repetitions), _measure_sdpa(shape, repetitions)]
    for scheme in ("int8", "none"):
        results += [
            _measure_backend(backend, scheme, shape, num_queries, repetitions)
            for backend in ("numba", "reference")
            for num_queries in (1, min(256, shape.context))
        ]
    print(f"{'one layer':<36}{'ms':>10}{'GB/s of K and V':>18}")
    for result in results:
        print(f"{result.name:<36}{result.milliseconds:>10.3f}{result.gigabytes_per_s:>18.2f}")
    rounded = {result.name: round(result.milliseconds, 3) for result in results}
    print(
        json.dumps(
            {
                "bench": "kernels",
                "threads": torch.get_num_threads(),
                **shape._asdict(),
                "ms": rounded,
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
    parser.add_argument("--cache-dir", type=Path, default=Path("~/.cache/hearth"))
    return parser.parse_args()


def _measure_read(repetitions: int) -> Measurement:
    numbers = torch.ones(64 * 2**20)
    return _measured("plain read of 256 MiB", numbers.sum, numbers.nbytes, min(repetitions, 10))


def _measure_sdpa(shape: Shape, repetitions: int) -> Measurement:
    keys = torch.randn(shape.num_sequences, shape.num_kv_heads, shape.context, shape.head_dim)
    values = torch.randn_like(keys)
    query = torch.randn(shape.num_sequences, shape.num_heads, 1, shape.head_dim)

    def attend() -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

    return _measured("decode, SDPA, contiguous", attend, 2 * keys.nbytes, repetitions)


def _measure_backend(
    name: str, scheme: str, shape: Shape, num_queries: int, repetitions: int
) -> Measurement:
    """Decode of all sequences, or the last `num_queries` tokens of one prompt."""
    if num_queries > 1:
        shape = shape._replace(num_sequences=1)
    storage, metadata = _filled_storage(scheme, shape, num_queries)
    backend = _make_backend(name, storage)
    num_tokens = shape.num_sequences * num_queries
    query = torch.randn(num_tokens, shape.num_heads, shape.head_dim)
    key, value = torch.randn(2, num_tokens, shape.num_kv_heads, shape.head_dim)

    def attend() -> torch.Tensor:
        return backend.attend(0, query, key, value, metadata, shape.head_dim**-0.5, None)

    kind = "decode" if num_queries == 1 else f"prefill {num_queries}"
    label = f"{kind}, {name}, {scheme}"
    return _measured(label, attend, storage.nbytes, repetitions if name == "numba" else 3)


def _filled_storage(
    scheme: str, shape: Shape, num_queries: int
) -> tuple[PagedKVStorage, AttentionMetadata]:
    blocks_each = -(-shape.context // _BLOCK_SIZE)
    storage = PagedKVStorage(
        kv_scheme(scheme),
        num_layers=1,
        num_blocks=shape.num_sequences * blocks_each,
        block_size=_BLOCK_SIZE,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        dtype=torch.float32,
    )
    tables = torch.randperm(storage.num_blocks).view(shape.num_sequences, blocks_each)
    slots = tables[:, :, None] * _BLOCK_SIZE + torch.arange(_BLOCK_SIZE)
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


def _measured(
    name: str, call: Callable[[], torch.Tensor], num_bytes: int, repetitions: int
) -> Measurement:
    call()  # compiles, and touches the memory
    best_s = float("inf")
    for _ in range(repetitions):
        start_s = time.perf_counter()
        call()
        best_s = min(best_s, time.perf_counter() - start_s)
    return Measurement(name, best_s * 1e3, num_bytes / best_s / 1e9)


if __name__ == "__main__":
    main()
