"""What each KV format was measured to change in each model's answers, and what `auto` makes of it.

`python -m bench.kv_quality --model MODEL` measures an entry. The same format can be harmless for
one model and ruin another, so what was never measured is never chosen for its size.
"""

from __future__ import annotations

from typing import NamedTuple

# Mean KL divergence, in nats a token, that `auto` accepts for a smaller cache.
AUTO_BOUND = 0.001
UNMEASURED_CHOICE = "int8"
# Largest first; `auto` takes the last of them that is within the bound.
_BY_SIZE = ("none", "int8", "k8v4", "int4")


class MeasuredFormat(NamedTuple):
    """Of the shipped text, 8,192 tokens, teacher-forced, against float32 without quantization."""

    model: str  # as --model names it
    scheme: str
    kld: float  # mean, nats a token
    top1: float  # share of positions with the same most likely token
    date: str
    commit: str


MEASURED_FORMATS = (
    MeasuredFormat("bundled", "none", 0.0, 1.0, "2026-12-01", "3a97f79"),
    MeasuredFormat("bundled", "int8", 0.000377, 0.9879, "2026-12-01", "3a97f79"),
    MeasuredFormat("bundled", "k8v4", 0.007357, 0.9547, "2026-12-01", "638deb9"),
    MeasuredFormat("bundled", "int4", 0.027668, 0.9142, "2026-12-01", "019b550"),
)


class QualityTable:
    """Looks measurements up by model and format."""

    def __init__(self, measurements: tuple[MeasuredFormat, ...] = MEASURED_FORMATS) -> None:
        self._measurements = {(entry.model.lower(), entry.scheme): entry for entry in measurements}

    def find(self, model: str, scheme: str) -> MeasuredFormat | None:
        return self._measurements.get((model.lower(), scheme))

    def choose(self, model: str) -> str:
        """The smallest format that was measured to be within the bound for this model.

        A model that was never measured gets int8; one for which even int8 is beyond it, none.
        """
        if all(self.find(model, scheme) is None for scheme in _BY_SIZE):
            return UNMEASURED_CHOICE
        good = [scheme for scheme in _BY_SIZE if self._is_good(model, scheme)]
        return good[-1] if good else "none"

    def warning(self, model: str, scheme: str) -> str | None:
        """A sentence for who asks for a format that `auto` would not take; None if it is good."""
        if scheme == "none" or self._is_good(model, scheme):
            return None
        found = self.find(model, scheme)
        if found is not None:
            return (
                f"The KV format {scheme} was measured at a mean KL divergence of {found.kld:.2g} "
                f"on {model}, with the same most likely token at {found.top1:.1%} of positions; "
                f"up to {AUTO_BOUND:g} is good. Answers can differ: use --kv-cache-dtype auto for "
                f"{self.choose(model)}."
            )
        if scheme == UNMEASURED_CHOICE:
            return None
        return (
            f"The KV format {scheme} was never measured on {model}, and models differ much: run "
            f"python -m bench.kv_quality --model {model}, or use --kv-cache-dtype auto."
        )

    def _is_good(self, model: str, scheme: str) -> bool:
        found = self.find(model, scheme)
        return found is not None and found.kld <= AUTO_BOUND
