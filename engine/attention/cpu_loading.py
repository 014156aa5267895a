"""A chunk of keys and values, read from its blocks and converted to floats once for all rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from engine.attention.cpu_llvm import LANES
from engine.attention.cpu_reading import read_columns, read_rows, read_scales
from engine.attention.cpu_vectors import KEYS_PER_CHUNK

Array = Any  # of any element type: Numba compiles for those that come
_HALF = LANES // 2  # rows whose addresses are surely one block's


class Blocks(NamedTuple):
    """One layer's storage. Scales are the bits of float16, or None.

    keys        [num_blocks, num_kv_heads, block_size, data_size]
    key_scales  [num_blocks, num_kv_heads, block_size], and a dimension more for 4-bit groups
    """

    keys: Array
    key_scales: Array
    values: Array
    value_scales: Array
    key_offsets: Array  # [num_kv_heads, head_dim], float32, subtracted before writing; or None


class Chunk(NamedTuple):
    """4-bit numbers come multiplied by their scales; `soften` applies those of int8 vectors."""

    keys: Array  # [head_dim, KEYS_PER_CHUNK]
    values: Array  # [KEYS_PER_CHUNK, head_dim] and room to read on
    key_scales: Array  # [groups, KEYS_PER_CHUNK]
    value_scales: Array


@njit
def make_chunk(head_dim):  # type: ignore[no-untyped-def]
    max_groups = (head_dim + LANES - 1) // LANES
    return Chunk(
        keys=np.empty((head_dim, KEYS_PER_CHUNK), np.float32),
        values=np.empty((KEYS_PER_CHUNK + 2 * LANES, head_dim), np.float32),
        key_scales=np.empty((max_groups, KEYS_PER_CHUNK), np.float32),
        value_scales=np.empty((max_groups, KEYS_PER_CHUNK), np.float32),
    )


@njit
def load_chunk(blocks, slots, num_keys, rules, chunk):  # type: ignore[no-untyped-def]
    """`slots`: the block table, the KV head, and the position of the first key."""
    table, kv_head, first = slots
    for group in range(0, num_keys, LANES):
        place = (table, kv_head, first + group)
        end = group + LANES
        scales = chunk.key_scales[:, group:]
        _load_scales(blocks.key_scales, place, scales)
        groups = (scales.ctypes.data, rules.key_group_shift)
        rows = _stored_rows(blocks.keys, place)
        row_size = blocks.keys.shape[3]
        if row_size >= LANES:
            columns = chunk.keys[0, group:].ctypes.data
            read_columns(rows, row_size, columns, groups, blocks.keys)
        else:
            read_rows(rows, row_size, chunk.values[group].ctypes.data, groups, blocks.keys)
            chunk.keys[:, group:end] = chunk.values[group:end].T
        scales = chunk.value_scales[:, group:]
        _load_scales(blocks.value_scales, place, scales)
        groups = (scales.ctypes.data, rules.value_group_shift)
        rows = _stored_rows(blocks.values, place)
        row_size = blocks.values.shape[3]
        read_rows(rows, row_size, chunk.values[group].ctypes.data, groups, blocks.values)


@njit
def _load_scales(stored, place, scales):  # type: ignore[no-untyped-def]
    if stored is not None:
        num_groups = stored.size // (stored.shape[0] * stored.shape[1] * stored.shape[2])
        read_scales(_stored_rows(stored, place), num_groups, scales.ctypes.data, stored)


@njit
def _stored_rows(stored, place):  # type: ignore[no-untyped-def]
    """Addresses of the slots of a position and of the position eight later."""
    table, kv_head, position = place
    block_size = stored.shape[2]
    block, offset = position // block_size, position % block_size
    first = stored[table[block], kv_head, offset:].ctypes.data
    if offset + _HALF < block_size:
        return first, stored[table[block], kv_head, offset + _HALF :].ctypes.data
    # The next block; past the end of the table anything will do, since nobody looks at it.
    following = table[min(block + 1, table.size - 1)]
    return first, stored[following, kv_head].ctypes.data
