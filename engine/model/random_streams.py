"""Random numbers that depend on a request alone: its seed and how many tokens it has."""

from __future__ import annotations

import hashlib

import numpy as np

_KEY_MASK = 2**64 - 1  # any int64 seed is a key, negative ones too
_FRACTION_BITS = 53


def uniform(stream_seed: int, num_output_tokens: int) -> float:
    """The number in [0, 1) that draws output token `num_output_tokens` of a stream.

    Counter-based: neither what was drawn before nor a restart in between changes it.
    """
    stream = np.random.Philox(key=stream_seed & _KEY_MASK, counter=num_output_tokens)
    return int(stream.random_raw() >> (64 - _FRACTION_BITS)) / float(2**_FRACTION_BITS)


def derive_stream_seed(engine_seed: int, request_id: str) -> int:
    """The stream of a request that brings no seed: its own, and the same after a preemption."""
    digest = hashlib.blake2b(f"{engine_seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
