"""Chooses each request's next token with its own parameters and its own random stream.

Order: constraint, bias and penalties; temperature; top_k; top_p; min_p. Every value is taken over
one row, never over the batch, so a request's tokens do not depend on who shares the step. Knows
nothing of scheduling: a row is a request that needs a token now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.batch import SampledToken, StepResult
from engine.model.candidates import all_weights, are_filtered, filtered_candidates, strongest
from engine.model.logits_edits import LogitsEdits
from engine.model.random_streams import uniform
from engine.request import TokenLogprob, TokenLogprobs
from engine.sampling_params import SamplingParams

LOGPROB_FLOOR = -9999.0  # stands for minus infinity, which JSON cannot carry
_GREEDY_BELOW = 1e-5  # a smaller temperature leaves nothing but the strongest token
_PART_SIZE = 256

_NOT_A_NUMBER = (
    "The model's output for this request is not a number, so the reply was ended. "
    "Send the message again; if it happens again, restart the server."
)
_NO_TOKEN_LEFT = (
    "The request's constraint leaves no token that could come next, so the reply was ended. "
    "Ask for a less strict format."
)


class SamplerRow(NamedTuple):
    """One request that needs a token; row i belongs to row i of the logits."""

    request_id: str
    sampling: SamplingParams
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    stream_seed: int


class Sampler:
    """Ids from `vocab_size` on are padding of the model's output and are never chosen."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._edits = LogitsEdits()

    def sample(self, logits: Tensor, rows: Sequence[SamplerRow]) -> StepResult:
        """One token for each row of `logits` [num_rows, vocab_size or more].

        A row with unusable numbers is named in `failed`; the others are not affected.
        """
        usable = logits[:, : self._vocab_size].float()
        peaks, strongest_ids = (found.tolist() for found in usable.max(dim=-1))
        sampled: dict[str, SampledToken] = {}
        failed: dict[str, str] = {}
        for index, row in enumerate(rows):
            if not math.isfinite(peaks[index]):  # max() hands on NaN; -inf: nothing else there
                failed[row.request_id] = _NOT_A_NUMBER
            elif _is_plain_greedy(row.sampling):
                sampled[row.request_id] = SampledToken(strongest_ids[index])
            else:
                token = self._choose(usable[index].cpu().numpy(), peaks[index], row)
                if token is None:
                    failed[row.request_id] = _NO_TOKEN_LEFT
                else:
                    sampled[row.request_id] = token
        return StepResult(sampled=sampled, failed=failed)

    def _choose(
        self, raw_scores: NDArray[np.float32], raw_peak: float, row: SamplerRow
    ) -> SampledToken | None:
        scores, peak = raw_scores, raw_peak
        if LogitsEdits.are_asked(row.sampling):
            scores = self._edits.apply(
                raw_scores, row.sampling, row.prompt_token_ids, row.output_token_ids
            )
            peak = float(scores.max())
            if not math.isfinite(peak):
                return None
        token_id = int(scores.argmax()) if _is_greedy(row.sampling) else _draw(scores, peak, row)
        if row.sampling.logprobs is None:
            return SampledToken(token_id)
        return SampledToken(
            token_id, _logprobs(raw_scores, raw_peak, token_id, row.sampling.logprobs)
        )


def _is_greedy(sampling: SamplingParams) -> bool:
    return sampling.temperature < _GREEDY_BELOW


def _is_plain_greedy(sampling: SamplingParams) -> bool:
    return (
        _is_greedy(sampling) and sampling.logprobs is None and not LogitsEdits.are_asked(sampling)
    )


def _draw(scores: NDArray[np.float32], peak: float, row: SamplerRow) -> int:
    """Inverse of the cumulative distribution, in float64."""
    fraction = uniform(row.stream_seed, len(row.output_token_ids))
    if not are_filtered(row.sampling, len(scores)):
        weights = all_weights(scores, peak, row.sampling.temperature)
        return _at_fraction_of_row(weights, fraction)
    candidates = filtered_candidates(scores, peak, row.sampling)
    return int(candidates.token_ids[_at_fraction(np.cumsum(candidates.weights), fraction)])


def _at_fraction_of_row(weights: NDArray[np.float32], fraction: float) -> int:
    """The same over a whole vocabulary: first the part of the row, then the token in it."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _PART_SIZE), dtype=np.float64)
    ends = np.cumsum(sums)
    part = _at_fraction(ends, fraction)
    start = part * _PART_SIZE
    cumulative = np.cumsum(weights[start : start + _PART_SIZE], dtype=np.float64)
    left = max(fraction * ends[-1] - (ends[part] - sums[part]), 0.0)
    position = int(np.searchsorted(cumulative, left, side="right"))
    # Rounding may put the target at the part's very end: that is its last token of any weight.
    return start + min(position, int(np.searchsorted(cumulative, cumulative[-1])))


def _at_fraction(cumulative: NDArray[np.float64], fraction: float) -> int:
    # side="right" passes over tokens of no weight; fraction < 1 keeps it below the end.
    return int(np.searchsorted(cumulative, fraction * cumulative[-1], side="right"))


def _logprobs(
    scores: NDArray[np.float32], peak: float, token_id: int, num_alternatives: int
) -> TokenLogprobs:
    total = peak + math.log(all_weights(scores, peak, 1.0).sum(dtype=np.float64))

    def logprob(of_id: int) -> TokenLogprob:
        return TokenLogprob(of_id, max(float(scores[of_id]) - total, LOGPROB_FLOOR))

    top = strongest(scores, peak, num_alternatives)
    return TokenLogprobs(logprob(token_id), tuple(logprob(int(of_id)) for of_id in top))
