"""Counts and times what the engine does, and makes an EngineStats of it. Knows no device."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from engine.batch import ScheduledBatch
from engine.histogram import Histogram, RecentRate, RecentSamples, one_two_five
from engine.kv.manager import PoolUsage
from engine.kv.tiers import TierUsage
from engine.request import FinishReason, Request
from engine.stats import EngineStats

# vLLM's names and buckets
_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_INTER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_TOKENS = (
    1.0,
    8.0,
    16.0,
    32.0,
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16384.0,
)


class StepRecord(NamedTuple):
    """A step that has run."""

    batch: ScheduledBatch
    num_sampled: int
    duration_s: float
    ended_s: float
    has_failed: bool


class Gauges(NamedTuple):
    """What is true at the moment of a reading."""

    num_running: int
    num_waiting: int
    token_budget: int
    pool: PoolUsage
    num_preemptions: int
    tiers: TierUsage


class MetricsRecorder:
    """Written by the engine's thread alone; readers get the immutable snapshots."""

    def __init__(self, *, max_num_seqs: int, block_size: int, max_model_len: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._block_size = block_size
        tokens = one_two_five(max_model_len)
        self._histograms = {
            "time_to_first_token_seconds": Histogram(_TTFT_S),
            "inter_token_latency_seconds": Histogram(_INTER_TOKEN_S),
            "e2e_request_latency_seconds": Histogram(_REQUEST_S),
            "request_queue_time_seconds": Histogram(_REQUEST_S),
            "request_prefill_time_seconds": Histogram(_REQUEST_S),
            "request_decode_time_seconds": Histogram(_REQUEST_S),
            "request_prompt_tokens": Histogram(tokens),
            "request_generation_tokens": Histogram(tokens),
            "iteration_tokens_total": Histogram(_STEP_TOKENS),
        }
        self._ttft = RecentSamples()
        self._inter_token = RecentSamples()
        self._queue = RecentSamples()
        self._e2e = RecentSamples()
        self._prompt_rate = RecentRate()
        self._output_rate = RecentRate()
        self._last_step: StepRecord | None = None
        self._num_steps = 0
        self._num_step_failures = 0
        self._num_requests = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_host_tokens = 0
        self._num_disk_tokens = 0
        self._num_output_tokens = 0
        self._num_finished = Counter({reason.value: 0 for reason in FinishReason})

    def request_added(self, request: Request) -> None:
        self._num_requests += 1

    def request_started(self, request: Request) -> None:
        """The first time it runs; a preempted request does not start again."""
        if request.first_scheduled_s is None:
            return
        self._num_prompt_tokens += request.num_prompt_tokens
        self._num_cached_tokens += request.num_cached_tokens
        self._num_host_tokens += request.num_host_tokens
        self._num_disk_tokens += request.num_disk_tokens
        queued_s = request.first_scheduled_s - request.arrival_s
        self._queue.add(queued_s)
        self._histograms["request_queue_time_seconds"].add(queued_s)

    def token_sampled(self, request: Request, previous_s: float | None, now_s: float) -> None:
        """`previous_s` is when the token before was sampled; None for the first one."""
        self._num_output_tokens += 1
        if previous_s is None:
            self._ttft.add(now_s - request.arrival_s)
            self._histograms["time_to_first_token_seconds"].add(now_s - request.arrival_s)
        else:
            self._inter_token.add(now_s - previous_s)
            self._histograms["inter_token_latency_seconds"].add(now_s - previous_s)

    def step_ended(self, step: StepRecord) -> None:
        self._last_step = step
        self._num_steps += 1
        self._num_step_failures += step.has_failed
        self._prompt_rate.add(step.batch.num_prompt_tokens, step.ended_s)
        self._output_rate.add(step.num_sampled, step.ended_s)
        self._histograms["iteration_tokens_total"].add(step.batch.num_tokens)

    def request_ended(self, request: Request, now_s: float) -> None:
        if request.finish_reason is not None:
            self._num_finished[request.finish_reason.value] += 1
        self._e2e.add(now_s - request.arrival_s)
        histograms = self._histograms
        histograms["e2e_request_latency_seconds"].add(now_s - request.arrival_s)
        histograms["request_prompt_tokens"].add(request.num_prompt_tokens)
        histograms["request_generation_tokens"].add(len(request.output_token_ids))
        if request.first_token_s is None or request.first_scheduled_s is None:
            return
        prefill_s = request.first_token_s - request.first_scheduled_s
        histograms["request_prefill_time_seconds"].add(prefill_s)
        histograms["request_decode_time_seconds"].add(now_s - request.first_token_s)

    def snapshot(self, now_s: float, gauges: Gauges) -> EngineStats:
        step = self._last_step
        pool, tiers = gauges.pool, gauges.tiers
        return EngineStats(
            time_s=now_s,
            num_running=gauges.num_running,
            num_waiting=gauges.num_waiting,
            max_num_seqs=self._max_num_seqs,
            last_step_s=step.ended_s if step else None,
            step_duration_s=step.duration_s if step else None,
            step_num_requests=len(step.batch.requests) if step else 0,
            step_num_tokens=step.batch.num_tokens if step else 0,
            token_budget=gauges.token_budget,
            num_steps_total=self._num_steps,
            block_size=self._block_size,
            num_blocks=pool.num_blocks,
            num_blocks_in_use=pool.num_in_use,
            num_blocks_cached=pool.num_cached,
            num_blocks_free=pool.num_free,
            num_evicted_blocks_total=pool.num_evicted_total,
            num_host_slots=tiers.num_host_slots,
            num_host_blocks=tiers.num_host_blocks,
            num_disk_blocks=tiers.num_disk_blocks,
            disk_bytes=tiers.disk_bytes,
            max_disk_bytes=tiers.max_disk_bytes,
            num_saved_blocks_total=tiers.num_saved_total,
            num_restored_blocks_total=tiers.num_restored_total,
            num_prompt_tokens_total=self._num_prompt_tokens,
            num_cached_tokens_total=self._num_cached_tokens,
            num_host_tokens_total=self._num_host_tokens,
            num_disk_tokens_total=self._num_disk_tokens,
            num_output_tokens_total=self._num_output_tokens,
            num_preemptions_total=gauges.num_preemptions,
            num_requests_total=self._num_requests,
            num_requests_refused_total=0,  # the front desk's to fill in
            num_requests_finished_total=dict(self._num_finished),
            num_step_failures_total=self._num_step_failures,
            prompt_tokens_per_s=self._prompt_rate.per_second(now_s),
            output_tokens_per_s=self._output_rate.per_second(now_s),
            ttft=self._ttft.percentiles(),
            inter_token=self._inter_token.percentiles(),
            queue=self._queue.percentiles(),
            e2e=self._e2e.percentiles(),
            histograms={name: item.snapshot() for name, item in self._histograms.items()},
        )
