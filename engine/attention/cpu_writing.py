"""Storing K and V in their blocks, bit for bit as the KV schemes encode them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_FLOAT_MAX = np.float32(np.finfo(np.float32).max)
_HALF_MAX = np.float32(65504)
_HALF_NAN = np.uint16(0x7E00)
_SMALLEST_NORMAL_HALF = np.float32(2.0**-14)
_SUBNORMAL_HALF_STEP = np.float32(2.0**-24)
_EXPONENT_SHIFT = np.int32((127 - 15) << 10)  # from a half's exponent to a float's
_INT8_MAX = np.float32(127)


@njit
def write_tokens(key, value, blocks, slots, rotation, first, end):  # type: ignore[no-untyped-def]
    """Store tokens [first, end), exactly as the KV scheme encodes them."""
    block_size = blocks.keys.shape[2]
    for token in range(first, end):
        block, offset = slots[token] // block_size, slots[token] % block_size
        for head in range(key.shape[1]):
            place = (block, head, offset)
            _write_vector(key[token, head], blocks.keys, blocks.key_scales, place, rotation)
            _write_vector(value[token, head], blocks.values, blocks.value_scales, place, rotation)


@njit
def _write_vector(vector, stored, scales, place, rotation):  # type: ignore[no-untyped-def]
    if scales is None:
        stored[place][:] = vector
    else:
        rotated = vector.copy()
        rotate(rotated, rotation, 1.0)
        scales[place] = _quantize(rotated, stored[place])


@njit
def rotate(vector, rotation, factor):  # type: ignore[no-untyped-def]
    """Hadamard transform in place, block by block, in the order of `schemes.hadamard`."""
    half = 1
    while half < rotation:
        for start in range(0, vector.size, 2 * half):
            for index in range(start, start + half):
                first, second = vector[index], vector[index + half]
                vector[index] = first + second
                vector[index + half] = first - second
        half *= 2
    factor = np.float32(factor / math.sqrt(rotation))
    for index in range(vector.size):
        vector[index] *= factor


@njit
def _quantize(vector, stored):  # type: ignore[no-untyped-def]
    """Write int8 numbers, return the bits of their float16 scale; both as Int8Scheme has them."""
    largest = np.float32(0)
    for number in vector:
        if not abs(number) <= _FLOAT_MAX:
            stored[:] = 0
            return _HALF_NAN
        largest = max(largest, abs(number))
    bits = _half_bits(min(largest / _INT8_MAX, _HALF_MAX))
    divisor = _half_value(bits)
    if divisor == 0:
        stored[:] = 0
        return bits
    for index in range(vector.size):
        rounded = np.rint(vector[index] / divisor)
        stored[index] = np.int8(max(min(rounded, _INT8_MAX), -_INT8_MAX))
    return bits


@njit
def _half_bits(number):  # type: ignore[no-untyped-def]
    """The nearest float16, ties to even, of 0 <= number <= 65504."""
    if number < _SMALLEST_NORMAL_HALF:
        return np.uint16(np.rint(number / _SUBNORMAL_HALF_STEP))
    bits = np.float32(number).view(np.int32)
    bits += np.int32(0xFFF) + ((bits >> 13) & np.int32(1))
    return np.uint16((bits >> 13) - _EXPONENT_SHIFT)


@njit
def _half_value(bits):  # type: ignore[no-untyped-def]
    if bits < 1 << 10:
        return np.float32(bits) * _SUBNORMAL_HALF_STEP
    return np.int32((np.int32(bits) + _EXPONENT_SHIFT) << 13).view(np.float32)
