"""Which tokens of one row may be drawn: top_k, then top_p, then min_p, without sorting the row.

Candidates are the tokens within some distance of the strongest. That is decided by values alone,
so equal scores are treated equally, and the distance grows only while a filter needs more tokens.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.sampling_params import SamplingParams

Scores = NDArray[np.float32]

# Distance from the strongest token, in units of temperature; after the last one, all tokens.
_DISTANCES = (5.0, 8.0, 12.0)


class Candidates(NamedTuple):
    """Strongest first, equal scores by lower id. The strongest token weighs 1."""

    token_ids: NDArray[np.int64]
    weights: NDArray[np.float64]


def are_filtered(sampling: SamplingParams, vocab_size: int) -> bool:
    return sampling.top_p < 1.0 or sampling.min_p > 0.0 or _top_k(sampling, vocab_size) < vocab_size


def all_weights(scores: Scores, peak: float, temperature: float) -> Scores:
    """Unnormalised probabilities of a whole row; the strongest token weighs 1."""
    with np.errstate(over="ignore"):  # minus infinity is what the weight 0 is made of
        weights = scores - np.float32(peak)
        weights /= np.float32(temperature)
    return np.exp(weights, out=weights)


def filtered_candidates(scores: Scores, peak: float, sampling: SamplingParams) -> Candidates:
    """What the filters of `sampling` leave of a row; `peak` is its largest score."""
    top_k = _top_k(sampling, len(scores))
    needed_weight = math.inf
    if sampling.top_p < 1.0 and top_k == len(scores):
        total = all_weights(scores, peak, sampling.temperature).sum(dtype=np.float64)
        needed_weight = sampling.top_p * float(total)
    candidates = _enough_candidates(scores, peak, sampling, needed_weight)
    candidates = _ranked(scores, candidates, top_k)
    if sampling.top_p < 1.0:
        if not math.isfinite(needed_weight):  # top_k comes first: its tokens are the whole
            needed_weight = sampling.top_p * float(candidates.weights.sum())
        before = np.cumsum(candidates.weights) - candidates.weights
        candidates = _first(candidates, int(np.searchsorted(before, needed_weight)))
    if sampling.min_p > 0.0:
        candidates = _first(candidates, int(np.sum(candidates.weights >= sampling.min_p)))
    return candidates


def strongest(scores: Scores, peak: float, count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest scores, largest first."""
    if count == 0:
        return np.empty(0, np.int64)
    sampling = SamplingParams(top_k=count)
    candidates = _enough_candidates(scores, peak, sampling, math.inf)
    return _ranked(scores, candidates, min(count, len(scores))).token_ids


def _enough_candidates(
    scores: Scores, peak: float, sampling: SamplingParams, needed_weight: float
) -> Candidates:
    top_k = _top_k(sampling, len(scores))
    # top_p after top_k is a share of all k tokens, so there min_p cannot end the search early.
    smallest = sampling.min_p if top_k == len(scores) or sampling.top_p == 1.0 else 0.0
    for distance in _DISTANCES:
        found = _within(scores, peak, distance, sampling.temperature)
        if (
            len(found.token_ids) >= top_k
            or found.weights.sum() >= needed_weight
            or math.exp(-distance) < smallest
        ):
            return found
    return _within(scores, peak, math.inf, sampling.temperature)


def _within(scores: Scores, peak: float, distance: float, temperature: float) -> Candidates:
    floor = np.nextafter(np.float32(peak - distance * temperature), np.float32(-np.inf))
    token_ids = np.flatnonzero(scores >= floor)
    distances = (scores[token_ids].astype(np.float64) - peak) / temperature
    return Candidates(token_ids, np.exp(distances))


def _ranked(scores: Scores, candidates: Candidates, top_k: int) -> Candidates:
    values = scores[candidates.token_ids]
    chosen = np.arange(len(values))
    if top_k < len(values):
        smallest = np.partition(values, len(values) - top_k)[len(values) - top_k]
        chosen = np.flatnonzero(values >= smallest)
    order = chosen[_descending(values[chosen])[:top_k]]
    return Candidates(candidates.token_ids[order], candidates.weights[order])


def _descending(values: Scores) -> NDArray[np.int64]:
    """Positions, largest value first, equal values in their order.

    One sort of (value, position) packed into an integer: many times faster than a stable argsort.
    """
    bits = (values + np.float32(0)).view(np.int32)  # + 0: -0.0 becomes 0.0, its equal
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (~ascending).astype(np.int64) << 32 | np.arange(len(values))
    keys.sort()
    return keys & 0xFFFFFFFF


def _first(candidates: Candidates, count: int) -> Candidates:
    return Candidates(candidates.token_ids[:count], candidates.weights[:count])


def _top_k(sampling: SamplingParams, vocab_size: int) -> int:
    return sampling.top_k if 0 < sampling.top_k < vocab_size else vocab_size
