"""One immutable reading of the engine: what the dashboard, /metrics and /health are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Percentiles(NamedTuple):
    """Of the most recent samples, in seconds."""

    p50_s: float
    p95_s: float
    p99_s: float


class HistogramSnapshot(NamedTuple):
    """Cumulative, as Prometheus wants it: counts[i] is the number of samples <= bounds[i]."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total_count: int
    total_sum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters only rise. None means unknown (nothing measured yet), never zero."""

    time_s: float  # monotonic clock, when this reading was taken
    num_running: int
    num_waiting: int
    max_num_seqs: int
    # the last step
    last_step_s: float | None  # monotonic clock, when the last step ended
    step_duration_s: float | None
    step_num_requests: int
    step_num_tokens: int
    token_budget: int
    num_steps_total: int
    # the KV pool, in blocks: total = in use + cached + free
    block_size: int
    num_blocks: int
    num_blocks_in_use: int
    num_blocks_cached: int  # kept for reuse, nobody runs on them
    num_blocks_free: int
    num_evicted_blocks_total: int
    # below it
    num_host_slots: int  # blocks that fit the host's memory
    num_host_blocks: int
    num_disk_blocks: int
    disk_bytes: int  # what the disk cache takes up
    max_disk_bytes: int
    num_saved_blocks_total: int  # from the device to the host
    num_restored_blocks_total: int  # and back
    # counters since the start
    num_prompt_tokens_total: int  # of started requests
    num_cached_tokens_total: int  # of those, taken from the cache
    num_host_tokens_total: int  # of the cached ones, brought back from host memory
    num_disk_tokens_total: int  # and from disk
    num_output_tokens_total: int
    num_preemptions_total: int
    num_requests_total: int  # submitted and accepted
    num_requests_refused_total: int
    num_requests_finished_total: Mapping[str, int]  # by finish reason
    num_step_failures_total: int
    # recent, over the last ten seconds
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    # of the last 1,024 samples each; None before the first
    ttft: Percentiles | None
    inter_token: Percentiles | None
    queue: Percentiles | None
    e2e: Percentiles | None
    # vLLM's names without the prefix, e.g. "time_to_first_token_seconds"
    histograms: Mapping[str, HistogramSnapshot]
