"""Seeded: readings of processes that come and go, against counters kept by hand."""

from __future__ import annotations

import random
from dataclasses import fields

from engine.process.lifetime_totals import LifetimeTotals
from engine.stats import EngineStats, HistogramSnapshot
from tests.factories import make_engine_stats

COUNTERS = [
    "num_steps_total",
    "num_evicted_blocks_total",
    "num_saved_blocks_total",
    "num_restored_blocks_total",
    "num_prompt_tokens_total",
    "num_cached_tokens_total",
    "num_host_tokens_total",
    "num_disk_tokens_total",
    "num_output_tokens_total",
    "num_preemptions_total",
    "num_requests_total",
    "num_requests_refused_total",
    "num_step_failures_total",
]


def test_every_counter_is_known_here() -> None:
    named = [field.name for field in fields(EngineStats) if field.name.endswith("_total")]
    assert [name for name in named if name not in COUNTERS] == ["num_requests_finished_total"]


def test_totals_are_the_sums_of_all_processes() -> None:
    source = random.Random(20261201)
    totals, expected = LifetimeTotals(), dict.fromkeys(COUNTERS, 0)
    for _ in range(20):
        counted = dict.fromkeys(COUNTERS, 0)
        for _ in range(source.randrange(1, 5)):
            counted = {name: value + source.randrange(9) for name, value in counted.items()}
            reading = totals.add(make_engine_stats(**counted))
            assert {name: getattr(reading, name) for name in COUNTERS} == {
                name: expected[name] + counted[name] for name in COUNTERS
            }
        expected = {name: expected[name] + counted[name] for name in COUNTERS}
        at_rest = totals.process_ended(now_s=5.0, num_waiting=2)
        assert at_rest is not None
        assert {name: getattr(at_rest, name) for name in COUNTERS} == expected


def test_histograms_are_summed() -> None:
    totals = LifetimeTotals()
    first = {"a": HistogramSnapshot((1.0, 2.0), (1, 3), 4, 6.5)}
    totals.add(make_engine_stats(histograms=first))
    totals.process_ended(0.0, 0)
    second = {
        "a": HistogramSnapshot((1.0, 2.0), (0, 1), 2, 5.0),
        "b": HistogramSnapshot((1.0,), (1,), 1, 0.5),
    }
    reading = totals.add(make_engine_stats(histograms=second))
    assert reading.histograms == {
        "a": HistogramSnapshot((1.0, 2.0), (1, 4), 6, 11.5),
        "b": second["b"],
    }


def test_without_a_process_nothing_runs() -> None:
    totals = LifetimeTotals()
    assert totals.process_ended(0.0, 0) is None
    pool = {"num_blocks_in_use": 60, "num_blocks_free": 4, "num_host_blocks": 9}
    busy = make_engine_stats(num_running=3, num_waiting=1, **pool)
    totals.add(busy)
    at_rest = totals.process_ended(now_s=9.0, num_waiting=4)
    assert at_rest is not None
    assert (at_rest.num_running, at_rest.num_waiting, at_rest.time_s) == (0, 4, 9.0)
    assert (at_rest.num_blocks_in_use, at_rest.num_blocks_free) == (0, 64)
    assert at_rest.num_host_blocks == 0
