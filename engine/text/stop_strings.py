"""Finding stop strings in text that arrives in pieces. Knows characters, not tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StopScan(NamedTuple):
    """Text that may be shown now, and the stop string that ended it."""

    text: str
    stop_match: str | None


class StopStringMatcher:
    """Holds back only what may still become a stop string.

    The match completed first wins, the longest of those that end together, so the result does not
    depend on how the text was cut into pieces.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""

    def push(self, text: str) -> StopScan:
        text = self._held + text
        match = self._first_match(text)
        if match is not None:
            self._held = ""
            return StopScan(text[: text.index(match)], match)
        num_free = len(text) - self._num_possible_stop(text)
        self._held = text[num_free:]
        return StopScan(text[:num_free], None)

    def finish(self) -> str:
        """The held-back tail: no stop string was completed."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> str | None:
        found = [stop for stop in self._stop if stop in text]
        return min(found, key=lambda stop: (text.index(stop) + len(stop), -len(stop)), default=None)

    def _num_possible_stop(self, text: str) -> int:
        return max((_num_overlap(text, stop) for stop in self._stop), default=0)


def _num_overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    start = max(0, len(text) - len(stop) + 1)
    while (start := text.find(stop[0], start)) >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start += 1
    return 0
