"""Which of a model's rotary tables a sequence is computed with.

LongRoPE models have two: one for sequences within the length of their first training, one for
longer ones. All tokens of a sequence have the same, so KV of a sequence that grows past that length
is computed once more, from its first token on.
"""

from __future__ import annotations

from typing import NamedTuple

SHORT = "short"
LONG = "long"


class RopeRegimes(NamedTuple):
    """original_max_len: tokens up to which the short table holds; None: one table for all."""

    original_max_len: int | None = None

    def regime(self, num_tokens: int) -> str:
        """Of a sequence that feeds `num_tokens` tokens to the model, positions from 0 on."""
        if self.original_max_len is None:
            return ""
        return SHORT if num_tokens <= self.original_max_len else LONG


ONE_TABLE = RopeRegimes()
