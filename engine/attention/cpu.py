"""The Numba back end: one compiled call per layer and step, on the storage's own blocks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from engine.attention.cpu_kernels import Rules, Step, write_and_attend
from engine.attention.cpu_loading import Blocks
from engine.attention.interface import AttentionBackend, AttentionMetadata
from engine.kv.codecs import Int4Codec, LeadingInt8Codec, VectorCodec
from engine.kv.hadamard import hadamard_block
from engine.kv.storage import PagedKVStorage

_ROWS_PER_TILE = 24  # queries times heads that share a KV head; their scores stay in the L1 cache
_NO_WINDOW = 2**40


class NumbaAttention(AttentionBackend):
    """Compiles when it is first used, or takes what an earlier process has compiled and kept.

    A row's result depends on its own position and keys alone: neither on the chunk of the prompt
    it is computed in, nor on the other sequences of the step, nor on the number of threads.
    """

    name = "numba"

    def __init__(self, storage: PagedKVStorage) -> None:
        self._storage = storage
        self._blocks = [_layer_blocks(storage, layer) for layer in range(storage.num_layers)]
        scheme = storage.scheme
        self._rotation = hadamard_block(storage.head_dim) if scheme.is_quantized else 1
        self._num_leading = _num_leading(scheme.keys, storage.head_dim)
        self._group_shift = _group_shift(scheme.values)
        self._vector_dtype = torch.float32 if scheme.is_quantized else storage.dtype
        self._num_threads = min(torch.get_num_threads(), numba.get_num_threads())
        self._metadata: AttentionMetadata | None = None  # what `_step` was made of
        self._step: Step | None = None
        self._keeps_compiled = _keep_compiled()

    def warm_up(self, report: Callable[[str], None]) -> None:
        """Compile or load the kernel. Writes to block 0, which must not be in use."""
        report(
            "Preparing the attention kernel; the first start on a machine compiles it, which takes "
            "up to a minute."
        )
        if not self._keeps_compiled:
            report(
                "The compiled kernel cannot be kept, since its directory cannot be written: every "
                "start will compile it. Set --cache-dir to a directory that can be written."
            )
        shape = (1, self._storage.num_kv_heads, self._storage.head_dim)
        vector = torch.zeros(shape, dtype=self._storage.dtype)
        ends = torch.tensor([0, 1], dtype=torch.int32)
        first = torch.zeros((1, 1), dtype=torch.int32)
        metadata = AttentionMetadata(torch.zeros(1, dtype=torch.int64), ends, ends[1:], first)
        self.attend(0, vector, vector, vector, metadata, 1.0, None)

    def attend(
        self,
        layer_index: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
        scale: float,
        sliding_window: int | None,
    ) -> torch.Tensor:
        if metadata is not self._metadata:  # the same for all layers of a step
            self._step = _describe_step(metadata, query.shape[1] // key.shape[1])
            self._metadata = metadata
        output = torch.empty(query.shape, dtype=torch.float32)
        write_and_attend(
            _as_array(query, torch.float32),
            _as_array(key, self._vector_dtype),
            _as_array(value, self._vector_dtype),
            output.numpy(),
            self._blocks[layer_index],
            self._step,
            self._rules(scale, sliding_window),
            self._num_threads,
        )
        return output.to(query.dtype)

    def _rules(self, scale: float, sliding_window: int | None) -> Rules:
        return Rules(
            scale=float(scale),
            window=sliding_window or _NO_WINDOW,
            rotation=self._rotation,
            num_leading=self._num_leading,
            group_shift=self._group_shift,
        )


def _num_leading(codec: VectorCodec, head_dim: int) -> int:
    return codec.num_leading(head_dim) if isinstance(codec, LeadingInt8Codec) else 0


def _group_shift(codec: VectorCodec) -> int:
    return codec.group_size.bit_length() - 1 if isinstance(codec, Int4Codec) else 0


def _layer_blocks(storage: PagedKVStorage, layer: int) -> Blocks:
    keys, values, basis = storage.keys, storage.values, storage.scheme.key_basis
    return Blocks(
        keys=_bits(keys.data[layer]),
        key_scales=None if keys.scales is None else _bits(keys.scales[layer]),
        values=_bits(values.data[layer]),
        value_scales=None if values.scales is None else _bits(values.scales[layer]),
        key_offsets=None if basis is None else basis.offsets[layer].numpy(),
        keys_into=None if basis is None else basis.keys_into[layer].numpy(),
        queries_into=None if basis is None else basis.queries_into[layer].numpy(),
    )


def _describe_step(metadata: AttentionMetadata, heads_per_kv_head: int) -> Step:
    # Contiguous, always: for other arrays Numba would compile once more, in the middle of serving.
    query_starts = metadata.query_starts.contiguous().numpy()
    context_lengths = metadata.context_lengths.contiguous().numpy()
    tile_size = max(1, _ROWS_PER_TILE // heads_per_kv_head)
    return Step(
        slots=metadata.slot_mapping.contiguous().numpy(),
        query_starts=query_starts,
        context_lengths=context_lengths,
        block_tables=metadata.block_tables.contiguous().numpy(),
        tiles=_tiles(query_starts, context_lengths, tile_size),
        tile_size=tile_size,
    )


def _tiles(
    query_starts: NDArray[np.int32], context_lengths: NDArray[np.int32], tile_size: int
) -> NDArray[np.int64]:
    """The most work first, so that no thread is left with a long tile at the end."""
    tiles = []
    for sequence, (start, end) in enumerate(
        zip(query_starts[:-1].tolist(), query_starts[1:].tolist(), strict=True)
    ):
        for first in range(start, end, tile_size):
            tiles.append((sequence, first, min(tile_size, end - first)))
    array = np.array(tiles, dtype=np.int64)
    work = array[:, 2] * context_lengths[array[:, 0]]
    return array[np.argsort(-work, kind="stable")]


def _as_array(tensor: torch.Tensor, dtype: torch.dtype) -> NDArray:
    return _bits(tensor.to(dtype).contiguous())


def _bits(tensor: torch.Tensor) -> NDArray:
    """The same memory in a type that the kernel tells formats by; NumPy has no bfloat16."""
    if tensor.dtype == torch.float16:
        tensor = tensor.view(torch.uint16)
    elif tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return tensor.numpy()


def _keep_compiled() -> bool:
    """Let Numba keep what it compiles; False where no directory can be written.

    Numba looks only at the file of the outermost function to see whether its code has changed. So
    the directory's name is taken from all the files that are compiled.
    """
    here = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(here.glob("cpu_*.py")))
    digest = hashlib.blake2b(sources, digest_size=6).hexdigest()
    root = os.environ.get("NUMBA_CACHE_DIR") or here / "__pycache__"
    numba.config.CACHE_DIR = str(Path(root) / digest)
    try:
        write_and_attend.enable_caching()
    except RuntimeError:  # "no locator available"
        return False
    return True
