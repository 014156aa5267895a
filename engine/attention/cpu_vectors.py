"""The arithmetic of the CPU attention kernel, as functions that Numba code can call.

They take memory addresses and are inlined. In which order a row's numbers are added is fixed here,
by explicit vectors and fused multiply-adds, and not left to a compiler that may choose another way
for another loop length: that is what makes a row's bits independent of the rows it is computed
with. Matrices are pairs (address, floats from row to row).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from engine.attention.cpu_llvm import (
    FLOAT,
    INT32,
    INT64,
    LANES,
    constant,
    exp2,
    fused,
    largest,
    load,
    splat,
    store,
    vector,
)

KEYS_PER_CHUNK = 64  # keys between two corrections of the running softmax
MAX_ROWS_AT_ONCE = 6  # rows of a product whose sums stay in registers
STATE_SIZE = 2 * LANES  # floats of a row's running softmax: its maximum, its sums of weights
LOWEST = -3.4028234663852886e38  # the maximum over no keys

Emit = Callable[[Any, Sequence[Any]], Any]


def signature(emit: Emit, result: Any, *arguments: Any) -> Any:
    """What an intrinsic returns: its type, and how its code is emitted."""

    def generate(context: Any, builder: Any, signature: Any, values: Sequence[Any]) -> Any:
        value = emit(builder, values)
        return context.get_dummy_value() if value is None else value

    return result(*arguments), generate


@intrinsic
def next_number(typing_context, counter):  # type: ignore[no-untyped-def]
    """Take the next number from a counter that several threads share."""

    def emit(builder: Any, arguments: Sequence[Any]) -> Any:
        pointer = builder.inttoptr(arguments[0], INT64.as_pointer())
        return builder.atomic_rmw("add", pointer, INT64(1), "monotonic")

    return signature(emit, types.int64, counter)


@intrinsic
def multiply_add(typing_context, sums, left, right, shape):  # type: ignore[no-untyped-def]
    """sums += left @ right; `shape` is rows (up to MAX_ROWS_AT_ONCE), depth and width.

    Each sum is one chain of fused multiply-adds in the order of `depth`. Columns are computed 16
    or 32 at a time; those from `width` to the end of the last group get garbage.
    """

    def emit(builder: Any, arguments: Sequence[Any]) -> None:
        num_rows, depth, width = cgutils.unpack_tuple(builder, arguments[3], 3)
        matrices = [cgutils.unpack_tuple(builder, matrix, 2) for matrix in arguments[:3]]
        for rows in range(1, MAX_ROWS_AT_ONCE + 1):
            num_vectors = max(1, min(2, MAX_ROWS_AT_ONCE // rows))
            step = INT64(num_vectors * LANES)
            with (
                builder.if_then(builder.icmp_signed("==", num_rows, INT64(rows))),
                cgutils.for_range_slice(builder, INT64(0), width, step) as (column, _),
            ):
                _multiply_columns(builder, matrices, depth, column, (rows, num_vectors))

    return signature(emit, types.void, sums, left, right, shape)


@intrinsic
def soften(typing_context, scores, scales, visible, state, sums, of):  # type: ignore[no-untyped-def]
    """One row's step of the running softmax, in base 2, over a chunk of keys.

    Turns scores into weights, zero outside `visible` (first, end); updates the row's `state` and
    corrects its `sums` (address, width) when the maximum has grown. `of` is the arrays of keys
    and values: scores are multiplied by the scales of int8 keys, weights by those of int8 values
    (`scales`: two addresses).
    """

    def emit(builder: Any, arguments: Sequence[Any]) -> None:
        scores, scales, visible, state, sums, _ = arguments
        key_scales, value_scales = (
            address if array.dtype == types.int8 else None
            for address, array in zip(cgutils.unpack_tuple(builder, scales, 2), of, strict=True)
        )
        masks = _masks(builder, cgutils.unpack_tuple(builder, visible, 2))
        values = _visible_scores(builder, scores, key_scales, masks)
        old = load(builder, state, INT64(0))
        new = largest(builder, [old, *values])
        correction = exp2(builder, builder.fsub(old, new))
        total = builder.fmul(load(builder, state, INT64(LANES)), correction)
        for start, mask, value in zip(_CHUNK_STARTS, masks, values, strict=True):
            weight = builder.select(mask, exp2(builder, builder.fsub(value, new)), constant(0.0))
            total = builder.fadd(total, weight)
            if value_scales is not None:
                weight = builder.fmul(weight, load(builder, value_scales, INT64(start)))
                # Once more: an unwritten slot's scale may be anything.
                weight = builder.select(mask, weight, constant(0.0))
            store(builder, scores, INT64(start), weight)
        store(builder, state, INT64(0), new)
        store(builder, state, INT64(LANES), total)
        lanes = [builder.extract_element(maximum, INT32(0)) for maximum in (old, new)]
        with builder.if_then(builder.fcmp_unordered("!=", *lanes)):
            _scale_row(builder, sums, correction)

    return signature(emit, types.void, scores, scales, visible, state, sums, of)


@intrinsic
def normalize(typing_context, state, sums):  # type: ignore[no-untyped-def]
    """Divide a row's `sums` (address, width) by the sum of its weights."""

    def emit(builder: Any, arguments: Sequence[Any]) -> None:
        state, sums = arguments
        lanes = load(builder, state, INT64(LANES))
        total = FLOAT(0.0)
        for lane in range(LANES):
            total = builder.fadd(total, builder.extract_element(lanes, INT32(lane)))
        factor = splat(builder, builder.fdiv(FLOAT(1.0), total))
        _scale_row(builder, sums, factor)

    return signature(emit, types.void, state, sums)


_CHUNK_STARTS = range(0, KEYS_PER_CHUNK, LANES)


def _multiply_columns(
    builder: Any, matrices: Sequence[Any], depth: Any, column: Any, size: tuple[int, int]
) -> None:
    (sums, sums_row), (left, left_row), (right, right_row) = matrices
    num_rows, num_vectors = size
    starts = [builder.add(column, INT64(index * LANES)) for index in range(num_vectors)]
    totals = {}
    for row in range(num_rows):
        for index, start in enumerate(starts):
            place = builder.add(builder.mul(sums_row, INT64(row)), start)
            total = cgutils.alloca_once(builder, vector())  # LLVM makes it a register
            builder.store(load(builder, sums, place), total)
            totals[row, index] = (total, place)
    with cgutils.for_range(builder, depth) as loop:
        right_start = builder.mul(right_row, loop.index)
        rights = [load(builder, right, builder.add(right_start, start)) for start in starts]
        for row in range(num_rows):
            place = builder.add(builder.mul(left_row, INT64(row)), loop.index)
            number = splat(builder, load(builder, left, place, lanes=1))
            for index in range(num_vectors):
                total, _ = totals[row, index]
                builder.store(fused(builder, number, rights[index], builder.load(total)), total)
    for total, place in totals.values():
        store(builder, sums, place, builder.load(total))


def _masks(builder: Any, visible: Sequence[Any]) -> list[ir.Value]:
    first, end = (splat(builder, builder.trunc(bound, INT32)) for bound in visible)
    masks = []
    for start in _CHUNK_STARTS:
        positions = constant([start + lane for lane in range(LANES)], INT32)
        after = builder.icmp_signed(">=", positions, first)
        masks.append(builder.and_(after, builder.icmp_signed("<", positions, end)))
    return masks


def _visible_scores(
    builder: Any, scores: Any, scales: Any, masks: Sequence[ir.Value]
) -> list[ir.Value]:
    values = []
    for start, mask in zip(_CHUNK_STARTS, masks, strict=True):
        value = load(builder, scores, INT64(start))
        if scales is not None:
            value = builder.fmul(value, load(builder, scales, INT64(start)))
        values.append(builder.select(mask, value, constant(float("-inf"))))
    return values


def _scale_row(builder: Any, row: Any, factor: Any) -> None:
    address, width = cgutils.unpack_tuple(builder, row, 2)
    with cgutils.for_range_slice(builder, INT64(0), width, INT64(LANES)) as (start, _):
        store(builder, address, start, builder.fmul(load(builder, address, start), factor))
