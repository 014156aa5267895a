"""Small pieces of LLVM code on vectors of 16 floats, for the CPU attention kernel.

Nothing here is fast-math: every operation is rounded as it is written, on every processor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

LANES = 16  # floats in a vector here; LLVM splits it into what the processor has

FLOAT = ir.FloatType()
INT8, INT32, INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
# 2**x on [-0.5, 0.5], highest power first; relative error 3e-9.
_EXP2 = (
    1.5467364972e-04,
    1.3400432165e-03,
    9.6180359586e-03,
    5.5503272142e-02,
    2.4022651084e-01,
    6.9314720671e-01,
    1.0,
)
_ROUND = 12582912.0  # 1.5 * 2**23: added to a small float, it leaves the nearest integer


@contextmanager
def steps(builder: Any, count: Any, size: int) -> Iterator[Any]:
    """Starts 0, size, ...; the last one is moved back so that it ends at `count`."""
    with cgutils.for_range_slice(builder, INT64(0), count, INT64(size)) as (start, _):
        last = builder.sub(count, INT64(size))
        yield builder.select(builder.icmp_signed("<", start, last), start, last)


def exp2(builder: Any, exponents: Any) -> Any:
    """2**x for x <= 0 or NaN; at least 2**-126."""
    lowest = constant(-126.0)
    low = builder.fcmp_ordered("<", exponents, lowest)
    exponents = builder.select(low, lowest, exponents)
    shifted = builder.fadd(exponents, constant(_ROUND))
    rest = builder.fsub(exponents, builder.fsub(shifted, constant(_ROUND)))
    power = constant(_EXP2[0])
    for coefficient in _EXP2[1:]:
        power = fused(builder, power, rest, constant(coefficient))
    # The low bits of `shifted` are the integer part; 127 above it is a float's exponent.
    whole = builder.bitcast(shifted, vector(INT32))
    exponent = builder.shl(builder.add(whole, constant(127, INT32)), constant(23, INT32))
    return builder.fmul(power, builder.bitcast(exponent, vector()))


def fused(builder: Any, first: Any, second: Any, added: Any) -> Any:
    """first * second + added, rounded once."""
    kind = ir.FunctionType(added.type, [added.type] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    return builder.call(function, (first, second, added))


def largest(builder: Any, vectors: Sequence[Any]) -> Any:
    """The largest lane of all, in every lane; a NaN after the first vector counts as nothing."""
    found = vectors[0]
    for other in vectors[1:]:
        found = _larger(builder, other, found)
    distance = LANES // 2
    while distance:
        lanes = [(lane + distance) % LANES for lane in range(LANES)]
        turned = builder.shuffle_vector(found, found, constant(lanes, INT32))
        found = _larger(builder, turned, found)
        distance //= 2
    return found


def _larger(builder: Any, first: Any, second: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", first, second), first, second)


def transposed(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """Columns of a 16 x 16 matrix: four rounds of interleaving row i with row i + 8."""
    half = LANES // 2
    low = [lane // 2 + (lane % 2) * LANES for lane in range(LANES)]
    high = [lane + half for lane in low]
    current = list(rows)
    for _ in range(4):
        current = [
            builder.shuffle_vector(current[row], current[row + half], constant(lanes, INT32))
            for row in range(half)
            for lanes in (low, high)
        ]
    return current


def to_float(builder: Any, numbers: Any, kind: Any) -> Any:
    """Stored numbers as floats: int8, float32, or the bits of 16-bit floats in integers."""
    lanes = numbers.type.count
    if kind == types.float32:
        return numbers
    if kind == types.int8:
        return builder.sitofp(numbers, vector(FLOAT, lanes))
    wide = builder.zext(numbers, vector(INT32, lanes))
    if kind == types.int16:  # bfloat16: the upper half of a float
        shifted = builder.shl(wide, constant(16, INT32, lanes))
        return builder.bitcast(shifted, vector(FLOAT, lanes))
    assert kind == types.uint16, "float16"
    return _half_to_float(builder, wide, lanes)


def _half_to_float(builder: Any, bits: Any, lanes: int) -> Any:
    def integers(value: int) -> Any:
        return constant(value, INT32, lanes)

    magnitude = builder.shl(builder.and_(bits, integers(0x7FFF)), integers(13))
    # Read as a float, the magnitude is 2**112 too small; the product also handles subnormals.
    floats = builder.bitcast(magnitude, vector(FLOAT, lanes))
    floats = builder.fmul(floats, constant(2.0**112, FLOAT, lanes))
    finite = builder.icmp_unsigned("<", magnitude, integers(0x7C00 << 13))
    special = builder.or_(magnitude, integers(0xFF << 23))
    whole = builder.select(finite, builder.bitcast(floats, special.type), special)
    sign = builder.shl(builder.and_(bits, integers(0x8000)), integers(16))
    return builder.bitcast(builder.or_(whole, sign), vector(FLOAT, lanes))


def vector(element: Any = FLOAT, lanes: int = LANES) -> Any:
    return ir.VectorType(element, lanes)


def constant(value: Any, element: Any = FLOAT, lanes: int = LANES) -> Any:
    values = value if isinstance(value, list) else [value] * lanes
    return ir.Constant(vector(element, len(values)), [element(item) for item in values])


def splat(builder: Any, scalar: Any) -> Any:
    single = builder.insert_element(vector(scalar.type)(ir.Undefined), scalar, INT32(0))
    return builder.shuffle_vector(single, single, constant(0, INT32))


def load(builder: Any, base: Any, index: Any, kind: Any = types.float32, lanes: int = LANES) -> Any:
    element = FLOAT if kind == types.float32 else ir.IntType(kind.bitwidth)
    kind_of_value = element if lanes == 1 else vector(element, lanes)
    return builder.load(
        _pointer(builder, base, index, element, kind_of_value), align=_size(element)
    )


def store(builder: Any, base: Any, index: Any, value: Any) -> None:
    builder.store(value, _pointer(builder, base, index, FLOAT, value.type), align=_size(FLOAT))


def _pointer(builder: Any, base: Any, index: Any, element: Any, kind: Any) -> Any:
    offset = builder.mul(index, INT64(_size(element)))
    return builder.inttoptr(builder.add(base, offset), kind.as_pointer())


def _size(element: Any) -> int:
    return 4 if element is FLOAT else element.width // 8
