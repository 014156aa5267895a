from __future__ import annotations

import random

import pytest

from engine.request import FinishReason
from engine.stats import EngineStats, Percentiles
from tests.engine_factories import CoreDriver


def test_nothing_measured_is_unknown() -> None:
    stats = CoreDriver().core.stats()
    assert (stats.ttft, stats.inter_token, stats.queue, stats.e2e) == (None, None, None, None)
    assert (stats.last_step_s, stats.step_duration_s) == (None, None)
    assert (stats.num_blocks, stats.num_blocks_free, stats.num_blocks_in_use) == (64, 64, 0)
    assert stats.num_requests_finished_total == {"stop": 0, "length": 0, "abort": 0, "error": 0}


def test_a_request_leaves_its_figures() -> None:
    driver = CoreDriver(prompt_tokens=8)
    driver.runner.fault = lambda batch: setattr(driver.clock, "now_s", driver.clock.now_s + 0.5)
    driver.clock.now_s = 2.0
    driver.add("a", range(10), max_tokens=3, arrival_s=1.0)
    driver.run()
    stats = driver.core.stats()
    assert stats.queue == Percentiles(1.0, 1.0, 1.0)
    assert stats.ttft == Percentiles(2.0, 2.0, 2.0)  # two steps of prompt
    assert stats.inter_token == Percentiles(0.5, 0.5, 0.5)
    assert stats.e2e == Percentiles(3.0, 3.0, 3.0)
    assert stats.num_requests_total == 1
    assert (stats.num_prompt_tokens_total, stats.num_output_tokens_total) == (10, 3)
    assert stats.num_requests_finished_total["length"] == 1
    assert (stats.num_steps_total, stats.step_duration_s, stats.last_step_s) == (4, 0.5, 4.0)
    assert stats.output_tokens_per_s == pytest.approx(3 / 1.5)
    assert stats.histograms["request_prefill_time_seconds"].total_sum == 1.0
    assert stats.histograms["request_decode_time_seconds"].total_sum == 1.0
    assert stats.histograms["request_prompt_tokens"].total_sum == 10
    assert stats.histograms["request_generation_tokens"].total_sum == 3
    assert stats.histograms["iteration_tokens_total"].total_sum == 12


def test_what_comes_from_the_cache_is_counted() -> None:
    driver = CoreDriver()
    driver.add("a", range(10), max_tokens=1)
    driver.run()
    driver.add("b", [*range(10), 77], max_tokens=1)
    driver.run()
    stats = driver.core.stats()
    assert (stats.num_prompt_tokens_total, stats.num_cached_tokens_total) == (21, 10)


def counters_of(stats: EngineStats) -> dict[str, int]:
    counters = {name: getattr(stats, name) for name in dir(stats) if name.endswith("_total")}
    counters |= counters.pop("num_requests_finished_total")
    return counters | {name: item.total_count for name, item in stats.histograms.items()}


def test_br_52_counters_only_rise_through_preemptions_hits_and_aborts() -> None:
    driver = CoreDriver(num_blocks=8, max_num_seqs=4)
    generator = random.Random(0)
    before = counters_of(driver.core.stats())
    for index in range(200):
        driver.add(f"r{index}", range(generator.randint(1, 16)), user=f"user {index % 3}")
        driver.step(seconds=0.1)
        if generator.random() < 0.3:
            driver.abort(f"r{generator.randint(0, index)}")
        stats = driver.core.stats()
        counters = counters_of(stats)
        assert all(counters[name] >= before[name] for name in before)
        assert stats.prompt_tokens_per_s >= 0
        before = counters
    assert before["num_preemptions_total"] > 0
    assert before["num_cached_tokens_total"] > 0
    assert before[FinishReason.ABORT.value] > 0
