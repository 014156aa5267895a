"""What a request asks to change in the scores of its own row: constraint, bias, penalties."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from engine.sampling_params import SamplingParams

Scores = NDArray[np.float32]
TokenIds = NDArray[np.int64]

_MAX_SCORE = float(np.finfo(np.float32).max) / 2
_NUM_PROMPTS_REMEMBERED = 64


class LogitsEdits:
    """Applies them in vLLM's order: constraint, bias, repetition, then frequency and presence."""

    def __init__(self) -> None:
        # A prompt's ids are looked at in each of its steps; sorting them once is enough.
        self._prompt_ids = lru_cache(maxsize=_NUM_PROMPTS_REMEMBERED)(_distinct)

    @staticmethod
    def are_asked(sampling: SamplingParams) -> bool:
        return bool(
            sampling.repetition_penalty != 1.0
            or sampling.presence_penalty != 0.0
            or sampling.frequency_penalty != 0.0
            or sampling.logit_bias
            or sampling.constraint is not None
        )

    def apply(
        self,
        scores: Scores,
        sampling: SamplingParams,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> Scores:
        """An edited copy of one row. Tokens that the constraint forbids become -inf."""
        edited = _constrained(scores, sampling, output_token_ids)
        if sampling.logit_bias:
            ids = np.fromiter(sampling.logit_bias.keys(), np.int64)
            bias = np.fromiter(sampling.logit_bias.values(), np.float64)
            known = ids < len(edited)
            _store(edited, ids[known], edited[ids[known]] + bias[known])
        if sampling.repetition_penalty != 1.0:
            seen = np.union1d(
                self._prompt_ids(tuple(prompt_token_ids)), _distinct(output_token_ids)
            )
            _penalize_repetition(edited, seen, sampling.repetition_penalty)
        if output_token_ids and (sampling.presence_penalty or sampling.frequency_penalty):
            ids, counts = np.unique(np.asarray(output_token_ids, np.int64), return_counts=True)
            penalty = sampling.frequency_penalty * counts + sampling.presence_penalty
            _store(edited, ids, edited[ids] - penalty)
        return edited


def _constrained(
    scores: Scores, sampling: SamplingParams, output_token_ids: Sequence[int]
) -> Scores:
    if sampling.constraint is None:
        return scores.copy()
    allowed = sampling.constraint.allowed_token_ids(output_token_ids)
    if allowed is None:
        return scores.copy()
    ids = np.asarray(allowed, np.int64)
    ids = ids[(ids >= 0) & (ids < len(scores))]
    edited = np.full_like(scores, -np.inf)
    edited[ids] = scores[ids]
    return edited


def _penalize_repetition(edited: Scores, seen: TokenIds, penalty: float) -> None:
    ids = seen[seen < len(edited)]
    values = edited[ids].astype(np.float64)
    with np.errstate(over="ignore"):
        _store(edited, ids, np.where(values > 0, values / penalty, values * penalty))


def _store(edited: Scores, ids: TokenIds, values: NDArray[np.float64]) -> None:
    """Keeps extreme, but permitted, parameters from making a finite score infinite."""
    forbidden = np.isneginf(edited[ids])
    edited[ids] = np.where(forbidden, -np.inf, np.clip(values, -_MAX_SCORE, _MAX_SCORE))


def _distinct(token_ids: Iterable[int]) -> TokenIds:
    return np.unique(np.fromiter(token_ids, np.int64))
