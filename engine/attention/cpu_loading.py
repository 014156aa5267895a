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
    """One layer's storage, and of its KeyBasis what LeadingInt8Codec's keys have, others None.

    Scales are the bits of float16, or None.

    keys        [num_blocks, num_kv_heads, block_size, data_size]
    key_scales  [num_blocks, num_kv_heads, block_size], and a dimension more for several
    """

    keys: Array
    key_scales: Array
    values: Array
    value_scales: Array
    key_offsets: Array
    keys_into: Array
    queries_into: Array


class Chunk(NamedTuple):
    """Numbers that come as bytes, not as int8, are multiplied by their scales; `soften` applies
    those of int8 vectors."""

    keys: Array  # [head_dim, KEYS_PER_CHUNK]
    values: Array  # [KEYS_PER_CHUNK, head_dim] and room to read on
    key_scales: Array  # [groups, KEYS_PER_CHUNK]
    value_scales: Array


@njit
def make_chunk(head_dim):  # type: ignore[no-untyped-def]
    max_groups = max(2, (head_dim + LANES - 1) // LANES)  # keys of two scales have any size
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
        scales = chunk.key_scales[:, group:]
        _load_scales(blocks.key_scales, place, scales)
        _load_keys(blocks, blocks.key_offsets, place, rules.num_leading, chunk)
        scales = chunk.value_scales[:, group:]
        _load_scales(blocks.value_scales, place, scales)
        groups = (scales.ctypes.data, rules.group_shift)
        rows = _stored_rows(blocks.values, place)
        row_size = blocks.values.shape[3]
        read_rows(rows, row_size, chunk.values[group].ctypes.data, groups, blocks.values)


@njit
def _load_keys(blocks, offsets, place, num_leading, chunk):  # type: ignore[no-untyped-def]
    """16 keys; heads may be too short for vectors of 16."""
    rows, row_size = _stored_rows(blocks.keys, place), blocks.keys.shape[3]
    group = place[2] % KEYS_PER_CHUNK
    columns, scales = chunk.keys[:, group:], chunk.key_scales[:, group:]
    if row_size - num_leading >= LANES:
        addresses = (columns.ctypes.data, scales.ctypes.data)
        read_columns(rows, (row_size, num_leading), addresses, blocks.keys)
    elif offsets is None:
        room = chunk.values[group : group + LANES]
        read_rows(rows, row_size, room.ctypes.data, (scales.ctypes.data, 0), blocks.keys)
        columns[:, :LANES] = room.T
    else:
        _load_short_leading_keys(blocks.keys, place, num_leading, scales, columns)


@njit
def _load_short_leading_keys(keys, place, num_leading, scales, columns):  # type: ignore[no-untyped-def]
    """Number by number."""
    table, kv_head, first = place
    row_size = keys.shape[3]
    for lane in range(LANES):
        block, offset = divmod(first + lane, keys.shape[2])
        row = keys[table[min(block, table.size - 1)], kv_head, offset]
        for index in range(num_leading):
            columns[index, lane] = np.float32(np.int8(row[index])) * scales[0, lane]
        for index in range(num_leading, row_size):
            low, high = np.int32(row[index] & 15) - 8, np.int32(row[index] >> 4) - 8
            columns[index, lane] = np.float32(low) * scales[1, lane]
            other = index + row_size - num_leading
            columns[other, lane] = np.float32(high) * scales[1, lane]


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
