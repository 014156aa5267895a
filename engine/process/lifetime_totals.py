"""Figures of one process after another, as one engine's: its counters never fall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from engine.stats import EngineStats, HistogramSnapshot

_COUNTERS = tuple(
    field.name
    for field in fields(EngineStats)
    if field.name.endswith("_total") and field.type == "int"
)


class LifetimeTotals:
    """Adds what earlier processes counted to what the present one does."""

    def __init__(self) -> None:
        self._before: EngineStats | None = None
        self._newest: EngineStats | None = None

    def add(self, stats: EngineStats) -> EngineStats:
        """The present process's reading with the totals of all."""
        before = self._before
        if before is not None:
            totals: dict[str, Any] = {
                name: getattr(before, name) + getattr(stats, name) for name in _COUNTERS
            }
            histograms = _sums(before.histograms, stats.histograms)
            stats = replace(stats, **totals, histograms=histograms)
        self._newest = stats
        return stats

    def process_ended(self, now_s: float, num_waiting: int) -> EngineStats | None:
        """How things stand while there is no process; None before the first reading."""
        newest = self._newest
        if newest is None:
            return None
        self._before = self._newest = replace(
            newest,
            time_s=now_s,
            num_running=0,
            num_waiting=num_waiting,
            num_blocks_in_use=0,
            num_blocks_cached=0,
            num_blocks_free=newest.num_blocks,
            num_host_blocks=0,
            prompt_tokens_per_s=0.0,
            output_tokens_per_s=0.0,
        )
        return self._newest


def _sums(
    before: Mapping[str, HistogramSnapshot], now: Mapping[str, HistogramSnapshot]
) -> Mapping[str, HistogramSnapshot]:
    return {name: _sum(before.get(name), snapshot) for name, snapshot in now.items()}


def _sum(before: HistogramSnapshot | None, now: HistogramSnapshot) -> HistogramSnapshot:
    """Buckets are the same: both come of the same settings."""
    if before is None:
        return now
    return HistogramSnapshot(
        now.bounds,
        tuple(one + other for one, other in zip(before.counts, now.counts, strict=True)),
        before.total_count + now.total_count,
        before.total_sum + now.total_sum,
    )
