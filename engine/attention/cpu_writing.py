"""Storing K and V in their blocks, bit for bit as `engine.kv.codecs` encodes them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_FLOAT_MAX = np.float32(np.finfo(np.float32).max)
_HALF_MAX = np.float32(65504)
_HALF_NAN = np.uint16(0x7E00)
_HALF_SIGN = np.uint16(0x8000)
_SMALLEST_NORMAL_HALF = np.float32(2.0**-14)
_SUBNORMAL_HALF_STEP = np.float32(2.0**-24)
_EXPONENT_SHIFT = np.int32((127 - 15) << 10)  # from a half's exponent to a float's
_INT8_MAX = np.float32(127)
_INT4_LOWEST = np.float32(-8)
_INT4_HIGHEST = np.float32(7)


@njit
def write_tokens(key, value, blocks, slots, rules, tokens):  # type: ignore[no-untyped-def]
    """Store tokens [first, end), exactly as the KV scheme encodes them."""
    block_size = blocks.keys.shape[2]
    for token in range(*tokens):
        block, offset = slots[token] // block_size, slots[token] % block_size
        for head in range(key.shape[1]):
            place = (block, head, offset)
            _write_key(key[token, head], blocks, blocks.key_offsets, place, rules)
            _write_vector(value[token, head], blocks.values, blocks.value_scales, place, rules)


@njit
def _write_key(vector, blocks, offsets, place, rules):  # type: ignore[no-untyped-def]
    if offsets is None:
        _write_vector(vector, blocks.keys, blocks.key_scales, place, rules)
        return
    head, num_leading = place[1], rules.num_leading
    transformed = np.empty_like(vector)
    transform(vector - offsets[head], blocks.keys_into[head], transformed)
    stored, scales = blocks.keys[place], blocks.key_scales[place]
    leading = stored[:num_leading].view(np.int8)
    scales[0] = _quantize(transformed[:num_leading], leading)
    rest = transformed[num_leading:]
    _quantize_groups(rest, stored[num_leading:], scales[1:], rest.size)


@njit
def _write_vector(vector, stored, scales, place, rules):  # type: ignore[no-untyped-def]
    if scales is None:
        stored[place][:] = vector
        return
    rotated = vector.copy()
    rotate(rotated, rules.rotation, 1.0)
    if scales.ndim == 3:
        scales[place] = _quantize(rotated, stored[place])
    else:
        _quantize_groups(rotated, stored[place], scales[place], 1 << rules.group_shift)


@njit
def transform(vector, matrix, target):  # type: ignore[no-untyped-def]
    """target = vector @ matrix, in the order of `engine.kv.key_basis`."""
    target[:] = 0
    for index in range(vector.size):
        number, row = vector[index], matrix[index]
        for column in range(target.size):
            target[column] += number * row[column]


@njit
def rotate(vector, rotation, factor):  # type: ignore[no-untyped-def]
    """Hadamard transform in place, block by block, in the order of `engine.kv.hadamard`."""
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
    """Write int8 numbers, return the bits of their float16 scale; both as Int8Codec has them."""
    bits = _half_bits(abs(_extreme(vector)) / _INT8_MAX)
    divisor = _half_value(bits)
    if not divisor > 0:
        stored[:] = 0
        return bits
    for index in range(vector.size):
        rounded = np.rint(vector[index] / divisor)
        stored[index] = np.int8(max(min(rounded, _INT8_MAX), -_INT8_MAX))
    return bits


@njit
def _quantize_groups(vector, stored, scales, group_size):  # type: ignore[no-untyped-def]
    """Write two 4-bit numbers a byte, and the bits of their groups' scales, as Int4Codec does."""
    num_bytes = stored.size
    for group in range(scales.size):
        first, end = group * group_size, min((group + 1) * group_size, vector.size)
        bits = _half_bits(_extreme(vector[first:end]) / _INT4_LOWEST)
        divisor = _half_value(bits)
        scales[group] = bits
        for index in range(first, end):
            level = np.float32(0)
            if abs(divisor) > 0:
                level = np.rint(vector[index] / divisor)
            level = max(min(level, _INT4_HIGHEST), _INT4_LOWEST)
            nibble = np.uint8(level - _INT4_LOWEST)
            if index < num_bytes:
                stored[index] = nibble
            else:
                stored[index - num_bytes] |= nibble << 4


@njit
def _extreme(numbers):  # type: ignore[no-untyped-def]
    """The number farthest from zero, the positive one of two; NaN if there is a bad one."""
    highest, lowest = numbers[0], numbers[0]
    for number in numbers:
        if not abs(number) <= _FLOAT_MAX:
            return np.float32(np.nan)
        highest, lowest = max(highest, number), min(lowest, number)
    return highest if highest >= -lowest else lowest


@njit
def _half_bits(number):  # type: ignore[no-untyped-def]
    """The nearest finite float16, ties to even, of a float32; one kind of 0, one kind of NaN."""
    if np.isnan(number):
        return _HALF_NAN
    magnitude = min(abs(number), _HALF_MAX)
    if magnitude < _SMALLEST_NORMAL_HALF:
        bits = np.uint16(np.rint(magnitude / _SUBNORMAL_HALF_STEP))
    else:
        whole = np.float32(magnitude).view(np.int32)
        whole += np.int32(0xFFF) + ((whole >> 13) & np.int32(1))
        bits = np.uint16((whole >> 13) - _EXPONENT_SHIFT)
    return bits | _HALF_SIGN if number < 0 and bits else bits


@njit
def _half_value(bits):  # type: ignore[no-untyped-def]
    if bits == _HALF_NAN:
        return np.float32(np.nan)
    sign = np.float32(-1 if bits & _HALF_SIGN else 1)
    bits &= ~_HALF_SIGN
    if bits < 1 << 10:
        return sign * np.float32(bits) * _SUBNORMAL_HALF_STEP
    return sign * np.int32((np.int32(bits) + _EXPONENT_SHIFT) << 13).view(np.float32)
