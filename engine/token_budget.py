"""How many prompt tokens a step may compute, and who gets them. Learns from step times."""

from __future__ import annotations

from collections.abc import Sequence

_MARGIN = 0.9  # aim below the target: step times scatter
_MAX_SURPRISE = 2.0  # one sample may say at most this many times what was expected
_WEIGHT = 0.5
_TELLING_TOKENS = 32  # fewer prompt tokens than this say little about the cost of one


class TokenBudget:
    """Sizes the prompt part of a step so that the step stays under a latency target.

    The model is step_time = base + per_token * prompt_tokens. `base` comes from steps that only
    decode, `per_token` from the others, both as moving averages that outliers cannot throw far. An
    error in `base` is made up for by `per_token`, so the step time still meets the target.
    """

    def __init__(
        self,
        *,
        target_s: float,
        max_tokens: int,
        min_prompt_tokens: int = 32,
        first_prompt_tokens: int = 128,
        idle_factor: float = 2.0,
    ) -> None:
        """`idle_factor` stretches the target while nobody decodes."""
        self._target_s = target_s * _MARGIN
        self._max_tokens = max_tokens
        self._min_prompt_tokens = min_prompt_tokens
        self._first_prompt_tokens = first_prompt_tokens
        self._idle_factor = idle_factor
        self._base_s: float | None = None
        self._per_token_s: float | None = None

    def prompt_tokens(self, num_decoding: int) -> int:
        """Prompt tokens for a step that also decodes for `num_decoding` requests."""
        wanted = max(self._wanted(num_decoding), self._min_prompt_tokens)
        return max(0, min(wanted, self._max_tokens - num_decoding))

    def observe(self, *, num_prompt_tokens: int, duration_s: float) -> None:
        """Learn from a step that has run."""
        if num_prompt_tokens == 0:
            self._base_s = _moved(self._base_s, duration_s, _WEIGHT)
            return
        base_s = self._base_s or 0.0
        if self._per_token_s is not None and duration_s < base_s:
            # Fewer decode now than when `base` was measured; the step says nothing else.
            self._base_s = max(0.0, duration_s - self._per_token_s * num_prompt_tokens)
            return
        per_token_s = max(duration_s - base_s, duration_s * 0.01) / num_prompt_tokens
        weight = _WEIGHT * min(1.0, num_prompt_tokens / _TELLING_TOKENS)
        self._per_token_s = _moved(self._per_token_s, per_token_s, weight)

    def _wanted(self, num_decoding: int) -> int:
        if self._per_token_s is None:
            return self._first_prompt_tokens
        target_s = self._target_s * (1.0 if num_decoding else self._idle_factor)
        left_s = max(0.0, target_s - (self._base_s or 0.0))
        return int(min(left_s / max(self._per_token_s, 1e-9), self._max_tokens))


def split_budget(remaining: Sequence[int], budget: int) -> list[int]:
    """Shares of prompt tokens; `remaining[0]` is the request at the head of the fair order.

    The head is sure of half, the shortest others come next, and what they leave is the head's: a
    long prompt neither starves nor holds up short ones.
    """
    if not remaining:
        return []
    shares = [0] * len(remaining)
    left = budget - min(remaining[0], (budget + 1) // 2)
    for index in sorted(range(1, len(remaining)), key=remaining.__getitem__):
        shares[index] = min(remaining[index], left)
        left -= shares[index]
    shares[0] = min(remaining[0], budget - sum(shares))
    return shares


def chunk_length(start: int, remaining: int, share: int, block_size: int) -> int:
    """Tokens to compute from `start`; a chunk that does not finish ends on a block boundary."""
    if share >= remaining:
        return remaining
    return max(0, (start + share) // block_size * block_size - start)


def _moved(estimate: float | None, sample: float, weight: float) -> float:
    if not estimate:  # nothing is known; and from 0 no factor would lead away
        return sample
    return estimate + weight * (min(sample, _MAX_SURPRISE * estimate) - estimate)
