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
from engine.attention.cpu_loading import Chunk, load_chunk, make_chunk
from engine.attention.cpu_vectors import (
    KEYS_PER_CHUNK,
    LOWEST,
    MAX_ROWS_AT_ONCE,
    STATE_SIZE,
    multiply_add,
    next_number,
    normalize,
    soften,
)
from engine.attention.cpu_writing import rotate, transform, write_tokens

Array = Any  # of any element type: Numba compiles for those that come
_LOG2_E = math.log2(math.e)


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
    num_leading: int  # numbers of a key that have 8 bits and not 4; 0 where that is no format
    group_shift: int  # binary logarithm of a value's numbers that share a scale; 0 without groups


class Scratch(NamedTuple):
    """One thread's working memory."""

    queries: Array  # [rows, head_dim]
    scores: Array  # [rows, KEYS_PER_CHUNK]
    sums: Array  # [rows, head_dim and room for a product's last columns]
    states: Array  # [rows, STATE_SIZE]
    chunk: Chunk


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
        write_tokens(key, value, blocks, step.slots, rules, (first, end))
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
        chunk=make_chunk(head_dim),
    )


@njit
def _start_rows(query, blocks, rules, tile, scratch):  # type: ignore[no-untyped-def]
    heads = query.shape[1] // blocks.keys.shape[1]
    for row in range(tile.num_tokens * heads):
        vector = scratch.queries[row]
        source = query[tile.first_token + row // heads, tile.kv_head * heads + row % heads]
        _prepare_query(source, vector, blocks.queries_into, tile.kv_head, rules)
        scratch.states[row, :LANES] = LOWEST
        scratch.states[row, LANES:] = 0
        scratch.sums[row] = 0


@njit
def _prepare_query(query, target, matrices, kv_head, rules):  # type: ignore[no-untyped-def]
    """Into the space of the stored keys, multiplied by what turns scores into powers of 2."""
    factor = rules.scale * _LOG2_E
    if matrices is None:
        target[:] = query
        rotate(target, rules.rotation, factor)
        return
    transform(query, matrices[kv_head], target)
    target *= np.float32(factor)


@njit
def _attend_tile(query, blocks, table, rules, tile, scratch):  # type: ignore[no-untyped-def]
    """Attention of one tile's tokens and the query heads that share its KV head."""
    heads = query.shape[1] // blocks.keys.shape[1]
    num_rows = tile.num_tokens * heads
    head_dim = query.shape[2]
    end = tile.first_position + tile.num_tokens
    first_visible = max(0, tile.first_position - rules.window + 1)
    chunk = scratch.chunk
    first = first_visible // KEYS_PER_CHUNK * KEYS_PER_CHUNK
    while first < end:
        num_keys = min(KEYS_PER_CHUNK, end - first)
        load_chunk(blocks, (table, tile.kv_head, first), num_keys, rules, chunk)
        scratch.scores[:num_rows] = 0
        _multiply(scratch.scores, scratch.queries, chunk.keys, num_rows, head_dim, num_keys)
        for row in range(num_rows):
            position = tile.first_position + row // heads - first
            visible = (max(position - rules.window + 1, 0), position + 1)
            _soften_row(row, visible, blocks, scratch)
        _multiply(scratch.sums, scratch.scores, chunk.values, num_rows, num_keys, head_dim)
        first += KEYS_PER_CHUNK


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
def _soften_row(row, visible, blocks, scratch):  # type: ignore[no-untyped-def]
    scores, sums, chunk = scratch.scores[row], scratch.sums[row], scratch.chunk
    soften(
        scores.ctypes.data,
        (chunk.key_scales.ctypes.data, chunk.value_scales.ctypes.data),
        visible,
        scratch.states[row].ctypes.data,
        (sums.ctypes.data, sums.size),
        (blocks.keys, blocks.values),
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
