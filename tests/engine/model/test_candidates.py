from __future__ import annotations

import numpy as np

from engine.model.candidates import filtered_candidates, strongest
from engine.sampling_params import SamplingParams
from tests.full_sort import kept_by_full_sort

VOCAB_SIZE = 1000


def random_filters(rng: np.random.Generator) -> SamplingParams:
    return SamplingParams(
        temperature=float(rng.choice([0.1, 0.7, 1.0, 2.0])),
        top_k=int(rng.choice([-1, 0, 1, 5, 40, 64, 300, VOCAB_SIZE - 1, VOCAB_SIZE, 10**9])),
        top_p=float(rng.choice([1e-6, 0.3011, 0.9013, 0.9511, 0.9993, 1.0])),
        min_p=float(rng.choice([0.0, 0.0, 1e-6, 0.01, 0.2, 1.0])),
    )


def test_filters_keep_what_a_full_sort_keeps() -> None:
    rng = np.random.default_rng(11)
    for trial in range(300):
        spread = float(rng.choice([0.01, 1.0, 4.0, 20.0]))
        scores = random_scores(trial, spread)
        if trial % 3 == 0:  # many equal scores, as in a 16-bit model
            scores = np.round(scores * 2) / 2
        sampling = random_filters(rng)
        kept = filtered_candidates(scores, float(scores.max()), sampling)
        expected = kept_by_full_sort(scores, sampling)
        assert kept.token_ids.tolist() == list(expected), sampling
        np.testing.assert_allclose(
            kept.weights / kept.weights.sum(), list(expected.values()), rtol=1e-6
        )


def random_scores(seed: int, spread: float) -> np.ndarray:
    numbers = np.random.default_rng(seed).standard_normal(VOCAB_SIZE)
    return (numbers * spread).astype(np.float32)


def test_the_strongest_are_found_in_order_with_ties_by_lower_id() -> None:
    for seed, count in ((0, 1), (1, 20), (2, 900), (3, 1000), (4, 5000)):
        scores = np.round(random_scores(seed, 2.5))
        order = np.lexsort((np.arange(VOCAB_SIZE), -scores))
        found = strongest(scores, float(scores.max()), count)
        assert found.tolist() == order[:count].tolist()
    assert strongest(scores, float(scores.max()), 0).tolist() == []
