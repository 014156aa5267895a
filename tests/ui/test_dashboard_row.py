"""What the dashboard shows of a sample: dashes for what is unknown, rates over the last minute."""

from __future__ import annotations

import pytest

from engine import GpuSnapshot, HostSnapshot, MonitorSample, Percentiles
from tests.factories import make_engine_stats, make_monitor_sample
from ui.dashboard_row import DashboardRow, dashboard_row, dashboard_rows


def cache_sample(second: float, num_prompt: int, num_cached: int) -> MonitorSample:
    stats = make_engine_stats(
        num_prompt_tokens_total=num_prompt, num_cached_tokens_total=num_cached
    )
    return make_monitor_sample(time_s=1000.0 + second, monotonic_s=second, engine=stats)


def test_while_the_model_loads_only_the_machine_has_figures() -> None:
    host = HostSnapshot(
        num_cpus=2,
        cpu_pct=40.0,
        memory_used_bytes=5,
        memory_total_bytes=9,
        process_cpu_pct=30.0,
        process_memory_bytes=3,
        process_uptime_s=12.0,
    )
    sample = make_monitor_sample(time_s=7.0, host=host, no_gpu_reason="No GPU here.")
    assert dashboard_row(sample, None) == DashboardRow(
        time_s=7.0,
        num_cpus=2,
        cpu_pct=40.0,
        process_cpu_pct=30.0,
        memory_used_bytes=5,
        memory_total_bytes=9,
        process_memory_bytes=3,
        uptime_s=12.0,
        no_gpu_reason="No GPU here.",
    )


def test_an_idle_engine_has_zeros_where_it_counts_and_none_where_nothing_was_measured() -> None:
    row = dashboard_row(make_monitor_sample(engine=make_engine_stats()), None)
    assert (row.num_running, row.num_waiting, row.num_failed_total) == (0, 0, 0)
    assert row.num_blocks_free == 64
    unknown = ("ttft_p50_s", "ttft_p95_s", "inter_token_p50_s", "inter_token_p95_s")
    steps = ("step_num_requests", "step_num_tokens", "step_duration_s")
    for name in (*unknown, *steps, "recent_hit_pct", "total_hit_pct"):
        assert getattr(row, name) is None


def test_tiers_that_are_not_there_have_no_figures() -> None:
    row = dashboard_row(make_monitor_sample(engine=make_engine_stats()), None)
    assert (row.num_host_blocks, row.num_disk_blocks, row.disk_bytes) == (None, None, None)
    stats = make_engine_stats(num_host_slots=9, num_host_blocks=4, max_disk_bytes=99, disk_bytes=5)
    row = dashboard_row(make_monitor_sample(engine=stats), None)
    assert (row.num_host_blocks, row.num_disk_blocks, row.disk_bytes) == (4, 0, 5)


def test_latency_percentiles() -> None:
    stats = make_engine_stats(
        ttft=Percentiles(0.2, 0.5, 0.9), inter_token=Percentiles(0.03, 0.04, 0.05)
    )
    row = dashboard_row(make_monitor_sample(engine=stats), None)
    assert (row.ttft_p50_s, row.ttft_p95_s) == (0.2, 0.5)
    assert (row.inter_token_p50_s, row.inter_token_p95_s) == (0.03, 0.04)


def test_outcomes_are_counted_by_kind() -> None:
    finished = {"stop": 5, "length": 3, "abort": 2, "error": 1}
    stats = make_engine_stats(num_requests_finished_total=finished)
    row = dashboard_row(make_monitor_sample(engine=stats), None)
    assert (row.num_finished_total, row.num_aborted_total, row.num_failed_total) == (11, 2, 1)


@pytest.mark.parametrize(("last_step_s", "shown"), [(99.0, 12), (94.0, None), (None, None)])
def test_the_batch_is_unknown_once_no_step_runs(
    last_step_s: float | None, shown: int | None
) -> None:
    stats = make_engine_stats(
        time_s=100.0, last_step_s=last_step_s, step_duration_s=0.1, step_num_tokens=12
    )
    assert dashboard_row(make_monitor_sample(engine=stats), None).step_num_tokens == shown


def test_the_recent_hit_rate_looks_one_minute_back() -> None:
    samples = [
        cache_sample(0, 0, 0),
        cache_sample(30, 100, 0),
        cache_sample(60, 200, 90),
        cache_sample(90, 300, 190),
        cache_sample(160, 300, 190),
    ]
    rows = dashboard_rows(samples)
    assert [row.recent_hit_pct for row in rows] == [None, 0.0, 45.0, 95.0, None]
    assert dashboard_rows(samples, after_s=60.0) == rows[3:]
    assert [row.total_hit_pct for row in rows][-2:] == [pytest.approx(100 * 190 / 300)] * 2


def test_the_minute_begins_when_the_model_is_loaded() -> None:
    loading = make_monitor_sample(monotonic_s=0.0)
    rows = dashboard_rows([loading, cache_sample(1, 0, 0), cache_sample(2, 50, 40)])
    assert [row.recent_hit_pct for row in rows] == [None, None, 80.0]


def test_br_52_counters_of_another_engine_make_no_negative_rate() -> None:
    rows = dashboard_rows([cache_sample(0, 900, 800), cache_sample(1, 10, 5)])
    assert rows[1].recent_hit_pct is None
    assert rows[1].total_hit_pct == 50.0


def test_gpus_are_passed_on() -> None:
    gpu = GpuSnapshot(index=0, lost="the GPU is lost")
    assert dashboard_row(make_monitor_sample(gpus=(gpu,)), None).gpus == (gpu,)
