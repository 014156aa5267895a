"""Distributions of what was measured: Prometheus buckets, and percentiles of recent samples."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from engine.stats import HistogramSnapshot, Percentiles


class Histogram:
    """Counts per bucket; only rises."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        value = max(0.0, value)
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def snapshot(self) -> HistogramSnapshot:
        cumulative = tuple(accumulate(self._counts))
        return HistogramSnapshot(self._bounds, cumulative[:-1], cumulative[-1], self._sum)


class RecentSamples:
    """The newest samples of one duration."""

    def __init__(self, max_samples: int = 1024) -> None:
        self._samples: deque[float] = deque(maxlen=max_samples)

    def add(self, value_s: float) -> None:
        self._samples.append(max(0.0, value_s))

    def percentiles(self) -> Percentiles | None:
        if not self._samples:
            return None
        ordered = sorted(self._samples)
        last = len(ordered) - 1
        return Percentiles(*(ordered[round(share * last)] for share in (0.5, 0.95, 0.99)))


class RecentRate:
    """Events per second over a sliding window."""

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._events: deque[tuple[float, int]] = deque()
        self._first_s: float | None = None

    def add(self, count: int, now_s: float) -> None:
        if self._first_s is None:
            self._first_s = now_s
        if count > 0:
            self._events.append((now_s, count))
        self._drop_old(now_s)

    def per_second(self, now_s: float) -> float:
        self._drop_old(now_s)
        if self._first_s is None:
            return 0.0
        span_s = min(self._window_s, max(1.0, now_s - self._first_s))
        return sum(count for _, count in self._events) / span_s

    def _drop_old(self, now_s: float) -> None:
        while self._events and self._events[0][0] <= now_s - self._window_s:
            self._events.popleft()


def one_two_five(largest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `largest`."""
    bounds: list[float] = []
    decade = 1
    while decade <= largest:
        bounds += [float(decade * step) for step in (1, 2, 5) if decade * step <= largest]
        decade *= 10
    return tuple(bounds)
