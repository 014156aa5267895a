"""Reading stored vectors as floats, as functions that Numba code can call.

Which code they become depends on the element type of the array `of`: uint8 is two 4-bit numbers a
byte. Those, and keys of LeadingInt8Codec, are multiplied by their scale on the way, a single
product of two floats, so that the result has the bits of the codec's.

`rows` is two addresses, of eight stored rows each. Columns, of keys and of scales, are written
KEYS_PER_CHUNK floats apart. `groups` is two numbers: the address of the scales, which are such
columns, at the first row; and a shift, dimension d being of group d >> shift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from engine.attention.cpu_llvm import (
    INT8,
    INT32,
    INT64,
    LANES,
    constant,
    load,
    splat,
    steps,
    store,
    to_float,
    transposed,
)
from engine.attention.cpu_vectors import KEYS_PER_CHUNK, signature

_HALF = LANES // 2  # rows whose addresses are surely one block's


@intrinsic
def read_columns(typing_context, rows, sizes, addresses, of):  # type: ignore[no-untyped-def]
    """Write 16 rows of stored keys as columns; bytes are those of LeadingInt8Codec.

    `sizes`: how many numbers or bytes a row is, and how many bytes of it are leading numbers; the
    others are 16 or more. `addresses`: where to write, and where columns of scales are.
    """

    def emit(builder: Any, arguments: Sequence[Any]) -> None:
        rows = arguments[0]
        row_size, num_leading = cgutils.unpack_tuple(builder, arguments[1], 2)
        target, scales = cgutils.unpack_tuple(builder, arguments[2], 2)
        if of.dtype == types.uint8:
            _unpack_leading(builder, rows, (row_size, num_leading), target, scales)
            _unpack_columns(builder, rows, (row_size, num_leading), target, scales)
            return
        with steps(builder, row_size, LANES) as start:
            for dimension, column in _columns(builder, rows, row_size, start, of.dtype):
                _store_column(builder, target, dimension, to_float(builder, column, of.dtype))

    return signature(emit, types.void, rows, sizes, addresses, of)


@intrinsic
def read_rows(typing_context, rows, row_size, target, groups, of):  # type: ignore[no-untyped-def]
    """Write 16 rows of `row_size` stored numbers as rows, one after the other."""

    def emit(builder: Any, arguments: Sequence[Any]) -> None:
        rows, row_size, target, (address, shift), _ = (
            *arguments[:3],
            cgutils.unpack_tuple(builder, arguments[3], 2),
            arguments[4],
        )
        is_packed = of.dtype == types.uint8
        num_floats = builder.mul(row_size, INT64(_HALF * (2 if is_packed else 1)))
        for half in (0, 1):
            stored = builder.extract_value(rows, half)
            start = builder.add(target, builder.mul(num_floats, INT64(4 * half)))
            if is_packed:
                scales = builder.add(address, INT64(4 * half * _HALF))
                _unpack_rows(builder, stored, row_size, start, (scales, shift))
            else:
                _convert(builder, stored, num_floats, start, of.dtype)

    return signature(emit, types.void, rows, row_size, target, groups, of)


@intrinsic
def read_scales(typing_context, rows, row_size, target, of):  # type: ignore[no-untyped-def]
    """Write 16 rows of `row_size` scales, bits of float16, as columns; `of` is their array."""

    def emit(builder: Any, arguments: Sequence[Any]) -> None:
        rows, row_size, target, _ = arguments
        if of.ndim == 3:  # one each, hence next to each other
            for half in (0, 1):
                start = builder.add(target, INT64(4 * half * _HALF))
                stored = builder.extract_value(rows, half)
                _convert(builder, stored, INT64(_HALF), start, types.uint16)
            return
        with cgutils.for_range(builder, row_size) as loop:
            bits = constant(0, ir.IntType(16))
            for row in range(LANES):
                base = builder.extract_value(rows, row // _HALF)
                place = builder.add(loop.index, builder.mul(row_size, INT64(row % _HALF)))
                number = load(builder, base, place, types.uint16, lanes=1)
                bits = builder.insert_element(bits, number, INT32(row))
            place = builder.mul(loop.index, INT64(KEYS_PER_CHUNK))
            store(builder, target, place, to_float(builder, bits, types.uint16))

    return signature(emit, types.void, rows, row_size, target, of)


def _convert(builder: Any, stored: Any, count: Any, target: Any, kind: Any) -> None:
    with steps(builder, count, _HALF) as start:
        numbers = load(builder, stored, start, kind, _HALF)
        store(builder, target, start, to_float(builder, numbers, kind))


def _unpack_leading(
    builder: Any, rows: Any, sizes: tuple[Any, Any], target: Any, scales: Any
) -> None:
    """16 at a time; what that is too many is overwritten by `_unpack_columns`."""
    row_size, num_leading = sizes
    scale = load(builder, scales, INT64(0))
    with cgutils.for_range_slice(builder, INT64(0), num_leading, INT64(LANES)) as (start, _):
        for dimension, column in _columns(builder, rows, row_size, start, types.int8):
            value = builder.fmul(to_float(builder, column, types.int8), scale)
            _store_column(builder, target, dimension, value)


def _unpack_columns(
    builder: Any, rows: Any, sizes: tuple[Any, Any], target: Any, scales: Any
) -> None:
    row_size, num_leading = sizes
    scale = load(builder, scales, INT64(KEYS_PER_CHUNK))
    num_bytes = builder.sub(row_size, num_leading)
    with steps(builder, num_bytes, LANES) as start:
        first = builder.add(start, num_leading)
        for place, column in _columns(builder, rows, row_size, first, types.uint8):
            dimension = place
            for levels in _levels(builder, column):
                value = builder.fmul(to_float(builder, levels, types.int8), scale)
                _store_column(builder, target, dimension, value)
                dimension = builder.add(dimension, num_bytes)


def _columns(
    builder: Any, rows: Any, row_size: Any, start: Any, kind: Any
) -> Iterator[tuple[Any, Any]]:
    """16 columns of 16 rows, from `start` on, each with its number."""
    numbers = [
        load(
            builder,
            builder.extract_value(rows, half),
            builder.add(start, builder.mul(row_size, INT64(row))),
            kind,
        )
        for half in (0, 1)
        for row in range(_HALF)
    ]
    for index, column in enumerate(transposed(builder, numbers)):
        yield builder.add(start, INT64(index)), column


def _store_column(builder: Any, target: Any, dimension: Any, column: Any) -> None:
    store(builder, target, builder.mul(dimension, INT64(KEYS_PER_CHUNK)), column)


def _unpack_rows(
    builder: Any, stored: Any, row_size: Any, target: Any, groups: Sequence[Any]
) -> None:
    """Eight rows. A group's size is a multiple of 16, which spares most heads the second scale."""
    is_short = builder.icmp_signed("<", row_size, INT64(LANES))
    rest = builder.and_(row_size, INT64(LANES - 1))
    is_aligned = builder.icmp_signed("==", rest, INT64(0))
    with cgutils.for_range(builder, INT64(_HALF)) as loop:
        first = builder.mul(loop.index, row_size)
        row = (
            builder.add(stored, first),
            row_size,
            builder.add(target, builder.mul(first, INT64(8))),
            (builder.add(groups[0], builder.mul(loop.index, INT64(4))), groups[1]),
        )
        with builder.if_else(is_short) as (short, long):
            with short:
                _unpack_short_row(builder, *row)
            with long, builder.if_else(is_aligned) as (aligned, unaligned):
                with aligned:
                    _unpack_row(builder, *row, _scale_of_one_group)
                with unaligned:
                    _unpack_row(builder, *row, _scale_of_two_groups)


def _unpack_row(
    builder: Any,
    stored: Any,
    row_size: Any,
    target: Any,
    groups: Sequence[Any],
    make_scale: Callable[[Any, Sequence[Any], Any], Any],
) -> None:
    with steps(builder, row_size, LANES) as dimension:
        packed = load(builder, stored, dimension, types.uint8)
        for levels in _levels(builder, packed):
            scale = make_scale(builder, groups, dimension)
            value = builder.fmul(to_float(builder, levels, types.int8), scale)
            store(builder, target, dimension, value)
            dimension = builder.add(dimension, row_size)


def _unpack_short_row(
    builder: Any, stored: Any, row_size: Any, target: Any, groups: Sequence[Any]
) -> None:
    """Too short for vectors of 16: number by number."""
    with cgutils.for_range(builder, row_size) as loop:
        dimension = loop.index
        packed = splat(builder, load(builder, stored, dimension, types.uint8, lanes=1))
        for levels in _levels(builder, packed):
            scale = _scale_of_one_group(builder, groups, dimension)
            value = builder.fmul(to_float(builder, levels, types.int8), scale)
            store(builder, target, dimension, builder.extract_element(value, INT32(0)))
            dimension = builder.add(dimension, row_size)


def _levels(builder: Any, packed: Any) -> tuple[Any, Any]:
    """The low and the high halves of 16 bytes, minus 8."""
    low = builder.and_(packed, constant(15, INT8))
    high = builder.lshr(packed, constant(4, INT8))
    return builder.sub(low, constant(8, INT8)), builder.sub(high, constant(8, INT8))


def _scale_of_one_group(builder: Any, groups: Sequence[Any], dimension: Any) -> Any:
    address, shift = groups
    place = builder.mul(builder.lshr(dimension, shift), INT64(KEYS_PER_CHUNK))
    return splat(builder, load(builder, address, place, lanes=1))


def _scale_of_two_groups(builder: Any, groups: Sequence[Any], dimension: Any) -> Any:
    """For 16 dimensions from `dimension` on, wherever the boundary of groups lies among them."""
    last = builder.add(dimension, INT64(LANES - 1))
    boundary = builder.shl(builder.lshr(last, groups[1]), groups[1])
    before = splat(builder, builder.trunc(builder.sub(boundary, dimension), INT32))
    is_before = builder.icmp_signed("<", constant(list(range(LANES)), INT32), before)
    first_scale, last_scale = (
        _scale_of_one_group(builder, groups, place) for place in (dimension, last)
    )
    return builder.select(is_before, first_scale, last_scale)
