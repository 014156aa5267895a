"""One step's attention on the CPU: write K and V into their blocks, then attend to the blocks.

A task is one KV head of one tile: a few consecutive tokens of a sequence with the query heads that
share the KV head. Threads take tasks as they become free. For each chunk of keys a task converts K
and V to floats once, whatever the number of its rows:

    scores [rows, keys] = queries [rows, head_dim] @ keys [head_dim, keys]
    sums [rows, head_dim] += weights(scores) @ values [keys, head_dim]

A chunk begins at a multiple of its size, so a row meets the same chunks in every tile.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from engine.attention.cpu_llvm import LANES
from engine.attention.cpu_vectors import (
    KEYS_PER_CHUNK,
    LOWEST,
    MAX_ROWS_AT_ONCE,
    STATE_SIZE,
    convert,
    multiply_add,
    next_number,
    normalize,
    soften,
    transpose,
)
from engine.attention.cpu_writing import rotate, write_tokens

Array = Any  # of any element type: Numba compiles for those that come
_LOG2_E = math.log2(math.e)
_HALF = LANES // 2  # rows whose addresses are surely one block's


class Blocks(NamedTuple):
    """One layer's storage. Scales are the bits of float16, or None."""

    keys: Array  # [num_blocks, num_kv_heads, block_size, head_dim]
    key_scales: Array  # [num_blocks, num_kv_heads, block_size]
    values: Array
    value_scales: Array


class Step(NamedTuple):
    """What is known of a step's sequences, as in AttentionMetadata, and its tiles."""

    slots: Array
    query_starts: Array
    context_lengths: Array
    block_tables: Array
    tiles: Array  # [num_tiles, 3]: sequence, first token in the packed row, number of tokens
    tile_size: int  # tokens in the largest tile


class Rules(NamedTuple):
    scale: float
    window: int  # keys that a query may see, itself included
    rotation: int  # size of the Hadamard blocks; 1 without rotation


class Scratch(NamedTuple):
    """One thread's working memory."""

    queries: Array  # [rows, head_dim]
    scores: Array  # [rows, KEYS_PER_CHUNK]
    sums: Array  # [rows, head_dim and room for a product's last columns]
    states: Array  # [rows, STATE_SIZE]
    keys: Array  # [head_dim, KEYS_PER_CHUNK]
    values: Array  # [KEYS_PER_CHUNK, head_dim] and room to read on
    scales: Array  # [2, KEYS_PER_CHUNK]


class Tile(NamedTuple):
    sequence: int
    first_token: int
    num_tokens: int
    first_position: int
    kv_head: int


@njit(parallel=True, nogil=True)
def write_and_attend(query, key, value, output, blocks, step, rules, num_threads):  # type: ignore[no-untyped-def]
    """One layer of one step. Everything is written before anything is attended to."""
    num_tokens = key.shape[0]
    counter = np.empty(1, np.int64)
    counter[0] = 0
    for thread in prange(num_threads):
        first = num_tokens * thread // num_threads
        end = num_tokens * (thread + 1) // num_threads
        write_tokens(key, value, blocks, step.slots, rules.rotation, first, end)
    for _ in prange(num_threads):
        _attend_tasks(counter, query, output, blocks, step, rules)


@njit
def _attend_tasks(counter, query, output, blocks, step, rules):  # type: ignore[no-untyped-def]
    num_kv_heads = blocks.keys.shape[1]
    num_rows = step.tile_size * (query.shape[1] // num_kv_heads)
    scratch = _make_scratch(num_rows, query.shape[2])
    num_tasks = step.tiles.shape[0] * num_kv_heads
    task = next_number(counter.ctypes.data)
    while task < num_tasks:
        sequence, first_token, num_tokens = step.tiles[task // num_kv_heads]
        to_end = step.query_starts[sequence + 1] - first_token
        first_position = step.context_lengths[sequence] - to_end
        tile = Tile(sequence, first_token, num_tokens, first_position, task % num_kv_heads)
        _start_rows(query, blocks, rules, tile, scratch)
        _attend_tile(query, blocks, step.block_tables[sequence], rules, tile, scratch)
        _finish_rows(output, blocks, rules, tile, scratch)
        task = next_number(counter.ctypes.data)


@njit
def _make_scratch(num_rows, head_dim):  # type: ignore[no-untyped-def]
    padded = (head_dim + 2 * LANES - 1) // (2 * LANES) * (2 * LANES)
    return Scratch(
        queries=np.empty((num_rows, head_dim), np.float32),
        scores=np.empty((num_rows, KEYS_PER_CHUNK), np.float32),
        sums=np.empty((num_rows, padded), np.float32),
        states=np.empty((num_rows, STATE_SIZE), np.float32),
        keys=np.empty((head_dim, KEYS_PER_CHUNK), np.float32),
        values=np.empty((KEYS_PER_CHUNK + 2 * LANES, head_dim), np.float32),
        scales=np.empty((2, KEYS_PER_CHUNK), np.float32),
    )


@njit
def _start_rows(query, blocks, rules, tile, scratch):  # type: ignore[no-untyped-def]
    heads = query.shape[1] // blocks.keys.shape[1]
    for row in range(tile.num_tokens * heads):
        vector = scratch.queries[row]
        vector[:] = query[tile.first_token + row // heads, tile.kv_head * heads + row % heads]
        rotate(vector, rules.rotation, rules.scale * _LOG2_E)
        scratch.states[row, :LANES] = LOWEST
        scratch.states[row, LANES:] = 0
        scratch.sums[row] = 0


@njit
def _attend_tile(query, blocks, table, rules, tile, scratch):  # type: ignore[no-untyped-def]
    """Attention of one tile's tokens and the query heads that share its KV head."""
    heads = query.shape[1] // blocks.keys.shape[1]
    num_rows = tile.num_tokens * heads
    head_dim = query.shape[2]
    end = tile.first_position + tile.num_tokens
    first_visible = max(0, tile.first_position - rules.window + 1)
    chunk = first_visible // KEYS_PER_CHUNK * KEYS_PER_CHUNK
    while chunk < end:
        num_keys = min(KEYS_PER_CHUNK, end - chunk)
        _load_chunk(blocks, table, tile.kv_head, chunk, num_keys, scratch)
        scratch.scores[:num_rows] = 0
        _multiply(scratch.scores, scratch.queries, scratch.keys, num_rows, head_dim, num_keys)
        for row in range(num_rows):
            position = tile.first_position + row // heads - chunk
            visible = (max(position - rules.window + 1, 0), position + 1)
            _soften_row(row, visible, blocks.keys, scratch)
        _multiply(scratch.sums, scratch.scores, scratch.values, num_rows, num_keys, head_dim)
        chunk += KEYS_PER_CHUNK


@njit
def _finish_rows(output, blocks, rules, tile, scratch):  # type: ignore[no-untyped-def]
    heads = output.shape[1] // blocks.keys.shape[1]
    for row in range(tile.num_tokens * heads):
        sums = scratch.sums[row]
        normalize(scratch.states[row].ctypes.data, (sums.ctypes.data, sums.size))
        vector = sums[: output.shape[2]]
        rotate(vector, rules.rotation, 1.0)
        output[tile.first_token + row // heads, tile.kv_head * heads + row % heads] = vector


@njit
def _soften_row(row, visible, keys, scratch):  # type: ignore[no-untyped-def]
    scores, sums = scratch.scores[row], scratch.sums[row]
    soften(
        scores.ctypes.data,
        (scratch.scales[0].ctypes.data, scratch.scales[1].ctypes.data),
        visible,
        scratch.states[row].ctypes.data,
        (sums.ctypes.data, sums.size),
        keys,
    )


@njit
def _multiply(sums, left, right, num_rows, depth, width):  # type: ignore[no-untyped-def]
    for row in range(0, num_rows, MAX_ROWS_AT_ONCE):
        multiply_add(
            (sums[row].ctypes.data, sums.shape[1]),
            (left[row].ctypes.data, left.shape[1]),
            (right.ctypes.data, right.shape[1]),
            (min(MAX_ROWS_AT_ONCE, num_rows - row), depth, width),
        )


@njit
def _load_chunk(blocks, table, kv_head, chunk, num_keys, scratch):  # type: ignore[no-untyped-def]
    """Convert the chunk's keys, as columns, its values and its scales to floats."""
    head_dim = blocks.keys.shape[3]
    for group in range(0, num_keys, LANES):
        position = chunk + group
        group_end = group + LANES
        if head_dim >= LANES:
            rows = _stored_rows(blocks.keys, table, kv_head, position)
            columns = scratch.keys[0, group:].ctypes.data
            transpose(rows, head_dim, columns, head_dim, blocks.keys)
        else:
            _load_rows(blocks.keys, table, kv_head, position, scratch.values[group:])
            scratch.keys[:, group:group_end] = scratch.values[group:group_end].T
        _load_rows(blocks.values, table, kv_head, position, scratch.values[group:])
        _load_scales(blocks.key_scales, table, kv_head, position, scratch.scales[0, group:])
        _load_scales(blocks.value_scales, table, kv_head, position, scratch.scales[1, group:])


@njit
def _load_rows(stored, table, kv_head, position, target):  # type: ignore[no-untyped-def]
    rows = _stored_rows(stored, table, kv_head, position)
    for half in range(2):
        convert(rows[half], target[half * _HALF].ctypes.data, _HALF * stored.shape[3], stored)


@njit
def _load_scales(stored, table, kv_head, position, scales):  # type: ignore[no-untyped-def]
    if stored is not None:
        rows = _stored_rows(stored, table, kv_head, position)
        for half in range(2):
            convert(rows[half], scales[half * _HALF :].ctypes.data, _HALF, stored)


@njit
def _stored_rows(stored, table, kv_head, position):  # type: ignore[no-untyped-def]
    """Addresses of the slots of `position` and of the position eight later."""
    block_size = stored.shape[2]
    block, offset = position // block_size, position % block_size
    first = stored[table[block], kv_head, offset:].ctypes.data
    if offset + _HALF < block_size:
        return first, stored[table[block], kv_head, offset + _HALF :].ctypes.data
    # The next block; past the end of the table anything will do, since nobody looks at it.
    following = table[min(block + 1, table.size - 1)]
    return first, stored[following, kv_head].ctypes.data
