"""The plain definition of top_k, top_p and min_p, which the sampler is tested against."""

from __future__ import annotations

import numpy as np

from engine.sampling_params import SamplingParams


def kept_by_full_sort(scores: np.ndarray, sampling: SamplingParams) -> dict[int, float]:
    """The plain definition: sort everything, softmax, cut three times, renormalise."""
    order = np.lexsort((np.arange(len(scores)), -scores))
    if 0 < sampling.top_k < len(scores):
        order = order[: sampling.top_k]
    scaled = scores[order].astype(np.float64) / sampling.temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    if sampling.top_p < 1:
        before = np.cumsum(probabilities) - probabilities
        keep = before < sampling.top_p
        order, probabilities = order[keep], probabilities[keep]
    keep = probabilities >= sampling.min_p * probabilities[0]
    order, probabilities = order[keep], probabilities[keep]
    return dict(zip(order.tolist(), (probabilities / probabilities.sum()).tolist(), strict=True))
