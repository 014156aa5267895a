"""What the dashboard shows of one moment: plain numbers, computed here so that they can be tested.

The page only formats and draws. None is an unknown figure and becomes a dash, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine import EngineStats, GpuSnapshot, MonitorSample, Percentiles

HIT_RATE_WINDOW_S = 60.0
IDLE_AFTER_S = 5.0  # the last step is no longer "now" after this


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardRow:
    time_s: float
    # requests
    num_running: int | None = None
    num_waiting: int | None = None
    max_num_seqs: int | None = None
    num_requests_total: int | None = None
    num_refused_total: int | None = None
    num_finished_total: int | None = None  # with whatever outcome
    num_aborted_total: int | None = None
    num_failed_total: int | None = None
    num_preemptions_total: int | None = None
    num_step_failures_total: int | None = None
    # speed
    output_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    num_output_tokens_total: int | None = None
    num_prompt_tokens_total: int | None = None
    num_cached_tokens_total: int | None = None
    # the step; None while no step runs
    step_num_requests: int | None = None
    step_num_tokens: int | None = None
    step_duration_s: float | None = None
    token_budget: int | None = None
    num_steps_total: int | None = None
    # the KV pool
    num_blocks: int | None = None
    num_blocks_in_use: int | None = None
    num_blocks_cached: int | None = None
    num_blocks_free: int | None = None
    num_evicted_blocks_total: int | None = None
    num_host_tokens_total: int | None = None
    num_disk_tokens_total: int | None = None
    num_host_blocks: int | None = None  # None: there is no such tier
    num_disk_blocks: int | None = None
    disk_bytes: int | None = None
    recent_hit_pct: float | None = None
    total_hit_pct: float | None = None
    # latency
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    inter_token_p50_s: float | None = None
    inter_token_p95_s: float | None = None
    # the machine
    num_cpus: int | None = None
    cpu_pct: float | None = None
    process_cpu_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    process_memory_bytes: int | None = None
    uptime_s: float | None = None
    no_gpu_reason: str | None = None
    gpus: tuple[GpuSnapshot, ...] = ()


def dashboard_rows(
    samples: Sequence[MonitorSample], after_s: float | None = None
) -> list[DashboardRow]:
    """One row for each sample, or each after a moment of the monotonic clock, in order.

    Earlier samples are what the recent hit rate looks back on.
    """
    rows = []
    start = 0
    for index, sample in enumerate(samples):
        window_start_s = sample.monotonic_s - HIT_RATE_WINDOW_S
        while start < index and (
            samples[start].monotonic_s < window_start_s or samples[start].engine is None
        ):
            start += 1
        if after_s is None or sample.monotonic_s > after_s:
            rows.append(dashboard_row(sample, samples[start].engine))
    return rows


def dashboard_row(sample: MonitorSample, earlier: EngineStats | None) -> DashboardRow:
    """`earlier` is the reading that the recent hit rate is counted from."""
    row = _machine_row(sample)
    return row if sample.engine is None else _with_engine(row, sample.engine, earlier)


def _machine_row(sample: MonitorSample) -> DashboardRow:
    host = sample.host
    return DashboardRow(
        time_s=sample.time_s,
        num_cpus=host.num_cpus,
        cpu_pct=host.cpu_pct,
        process_cpu_pct=host.process_cpu_pct,
        memory_used_bytes=host.memory_used_bytes,
        memory_total_bytes=host.memory_total_bytes,
        process_memory_bytes=host.process_memory_bytes,
        uptime_s=host.process_uptime_s,
        no_gpu_reason=sample.no_gpu_reason,
        gpus=sample.gpus,
    )


def _with_engine(
    row: DashboardRow, stats: EngineStats, earlier: EngineStats | None
) -> DashboardRow:
    finished = stats.num_requests_finished_total
    stepping = _is_stepping(stats)
    return replace(
        row,
        num_running=stats.num_running,
        num_waiting=stats.num_waiting,
        max_num_seqs=stats.max_num_seqs,
        num_requests_total=stats.num_requests_total,
        num_refused_total=stats.num_requests_refused_total,
        num_finished_total=sum(finished.values()),
        num_aborted_total=finished.get("abort", 0),
        num_failed_total=finished.get("error", 0),
        num_preemptions_total=stats.num_preemptions_total,
        num_step_failures_total=stats.num_step_failures_total,
        output_tokens_per_s=stats.output_tokens_per_s,
        prompt_tokens_per_s=stats.prompt_tokens_per_s,
        num_output_tokens_total=stats.num_output_tokens_total,
        num_prompt_tokens_total=stats.num_prompt_tokens_total,
        num_cached_tokens_total=stats.num_cached_tokens_total,
        step_num_requests=stats.step_num_requests if stepping else None,
        step_num_tokens=stats.step_num_tokens if stepping else None,
        step_duration_s=stats.step_duration_s if stepping else None,
        token_budget=stats.token_budget or None,
        num_steps_total=stats.num_steps_total,
        num_blocks=stats.num_blocks,
        num_blocks_in_use=stats.num_blocks_in_use,
        num_blocks_cached=stats.num_blocks_cached,
        num_blocks_free=stats.num_blocks_free,
        num_evicted_blocks_total=stats.num_evicted_blocks_total,
        num_host_tokens_total=stats.num_host_tokens_total,
        num_disk_tokens_total=stats.num_disk_tokens_total,
        num_host_blocks=stats.num_host_blocks if stats.num_host_slots else None,
        num_disk_blocks=stats.num_disk_blocks if stats.max_disk_bytes else None,
        disk_bytes=stats.disk_bytes if stats.max_disk_bytes else None,
        recent_hit_pct=_hit_pct(stats, earlier),
        total_hit_pct=_hit_pct(stats, None),
        ttft_p50_s=_p50(stats.ttft),
        ttft_p95_s=_p95(stats.ttft),
        inter_token_p50_s=_p50(stats.inter_token),
        inter_token_p95_s=_p95(stats.inter_token),
    )


def _is_stepping(stats: EngineStats) -> bool:
    return stats.last_step_s is not None and stats.time_s - stats.last_step_s < IDLE_AFTER_S


def _hit_pct(stats: EngineStats, earlier: EngineStats | None) -> float | None:
    """Share of prompt tokens that came from the cache; None where no prompt started."""
    num_prompt = stats.num_prompt_tokens_total
    num_cached = stats.num_cached_tokens_total
    if earlier is not None:
        num_prompt -= earlier.num_prompt_tokens_total
        num_cached -= earlier.num_cached_tokens_total
    if num_prompt <= 0 or num_cached < 0:  # below zero: another engine's counters
        return None
    return 100.0 * num_cached / num_prompt


def _p50(percentiles: Percentiles | None) -> float | None:
    return None if percentiles is None else percentiles.p50_s


def _p95(percentiles: Percentiles | None) -> float | None:
    return None if percentiles is None else percentiles.p95_s
