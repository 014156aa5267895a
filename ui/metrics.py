"""GET /metrics for Prometheus: EngineStats under vLLM's names with the prefix `hearth:`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine import Engine, EngineState, EngineStats, HistogramSnapshot
from ui.api.models import served_name
from ui.auth import require_api_key
from ui.server_config import ServerConfig

_PREFIX = "hearth:"


class _Reading(NamedTuple):
    name: str
    help: str
    read: Callable[[EngineStats], float | None]


_GAUGES = (
    _Reading("num_requests_running", "Requests in the running batch.", lambda s: s.num_running),
    _Reading("num_requests_waiting", "Requests waiting to start.", lambda s: s.num_waiting),
    _Reading(
        "kv_cache_usage_perc",
        "Share of the KV blocks that running requests hold; 1 is all.",
        lambda s: s.num_blocks_in_use / s.num_blocks if s.num_blocks else None,
    ),
    _Reading("kv_blocks", "KV blocks in all.", lambda s: s.num_blocks),
    _Reading(
        "kv_blocks_cached", "KV blocks kept for reuse by nobody.", lambda s: s.num_blocks_cached
    ),
    _Reading("kv_blocks_free", "KV blocks that hold nothing.", lambda s: s.num_blocks_free),
    _Reading("host_kv_blocks", "Evicted KV blocks in host memory.", lambda s: s.num_host_blocks),
    _Reading("host_kv_slots", "KV blocks that fit host memory.", lambda s: s.num_host_slots),
    _Reading("disk_kv_blocks", "KV blocks in the disk cache.", lambda s: s.num_disk_blocks),
    _Reading("disk_kv_bytes", "What the disk cache takes up.", lambda s: s.disk_bytes),
    _Reading("disk_kv_max_bytes", "What it may take up.", lambda s: s.max_disk_bytes),
    _Reading("step_duration_seconds", "Duration of the last step.", lambda s: s.step_duration_s),
)
_COUNTERS = (
    _Reading(
        "prompt_tokens", "Prompt tokens of started requests.", lambda s: s.num_prompt_tokens_total
    ),
    _Reading("generation_tokens", "Generated tokens.", lambda s: s.num_output_tokens_total),
    _Reading(
        "prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        lambda s: s.num_prompt_tokens_total,
    ),
    _Reading(
        "prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        lambda s: s.num_cached_tokens_total,
    ),
    _Reading(
        "num_preemptions", "Requests sent back to the queue.", lambda s: s.num_preemptions_total
    ),
    _Reading("evicted_blocks", "Cached blocks given up.", lambda s: s.num_evicted_blocks_total),
    _Reading(
        "saved_blocks",
        "Evicted blocks moved to host memory.",
        lambda s: s.num_saved_blocks_total,
    ),
    _Reading(
        "restored_blocks",
        "Blocks moved back from host memory.",
        lambda s: s.num_restored_blocks_total,
    ),
    _Reading("requests", "Requests accepted.", lambda s: s.num_requests_total),
    _Reading("requests_refused", "Requests refused.", lambda s: s.num_requests_refused_total),
    _Reading("steps", "Engine steps.", lambda s: s.num_steps_total),
    _Reading("step_failures", "Steps that failed.", lambda s: s.num_step_failures_total),
)
_HISTOGRAM_HELP: Mapping[str, str] = {
    "time_to_first_token_seconds": "Arrival to the first token.",
    "inter_token_latency_seconds": "Between two tokens of a request.",
    "e2e_request_latency_seconds": "Arrival to the end of a request.",
    "request_queue_time_seconds": "Arrival to the first step.",
    "request_prefill_time_seconds": "First step to the first token.",
    "request_decode_time_seconds": "First token to the last.",
}


class EngineCollector(Collector):
    """Reads the engine at each scrape; holds no numbers of its own."""

    def __init__(self, engine: Engine, config: ServerConfig) -> None:
        self._engine = engine
        self._config = config

    def collect(self) -> Iterator[Metric]:
        is_ready = self._engine.status().state is EngineState.READY
        yield GaugeMetricFamily(
            _PREFIX + "engine_ready", "1 while the model answers.", value=float(is_ready)
        )
        yield CounterMetricFamily(
            _PREFIX + "engine_restarts",
            "Times the engine's process was started again.",
            value=self._engine.status().num_restarts,
        )
        stats = self._engine.stats()
        if stats is None or not is_ready:
            return
        labels = {"model_name": served_name(self._config, self._engine.model_info())}
        yield from _metrics_of(stats, labels)


def metrics_router(*, engine: Engine, config: ServerConfig) -> APIRouter:
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine, config))
    router = APIRouter(dependencies=[Depends(require_api_key(config.api_key))])

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return router


def _metrics_of(stats: EngineStats, labels: Mapping[str, str]) -> Iterator[Metric]:
    names, values = list(labels), list(labels.values())
    for reading in _GAUGES:
        gauge = GaugeMetricFamily(_PREFIX + reading.name, reading.help, labels=names)
        value = reading.read(stats)
        if value is not None:
            gauge.add_metric(values, value)
        yield gauge
    for reading in _COUNTERS:
        counter = CounterMetricFamily(_PREFIX + reading.name, reading.help, labels=names)
        counter.add_metric(values, reading.read(stats) or 0)
        yield counter
    yield _cached_tokens_of(stats, labels)
    finished = CounterMetricFamily(
        _PREFIX + "request_success",
        "Requests that ended, by reason.",
        labels=[*names, "finished_reason"],
    )
    for reason, count in sorted(stats.num_requests_finished_total.items()):
        finished.add_metric([*values, str(reason)], count)
    yield finished
    for name, snapshot in stats.histograms.items():
        yield _histogram_of(name, snapshot, labels)


def _cached_tokens_of(stats: EngineStats, labels: Mapping[str, str]) -> Metric:
    """SGLang's name and label."""
    cached = CounterMetricFamily(
        _PREFIX + "cached_tokens",
        "Prompt tokens that were not computed, by where their KV was.",
        labels=[*labels, "cache_source"],
    )
    host, disk = stats.num_host_tokens_total, stats.num_disk_tokens_total
    device = stats.num_cached_tokens_total - host - disk
    for source, count in (("device", device), ("host", host), ("disk", disk)):
        cached.add_metric([*labels.values(), source], count)
    return cached


def _histogram_of(name: str, snapshot: HistogramSnapshot, labels: Mapping[str, str]) -> Metric:
    histogram = HistogramMetricFamily(
        _PREFIX + name, _HISTOGRAM_HELP.get(name, name.replace("_", " ")), labels=list(labels)
    )
    buckets = [
        (str(bound), float(count))
        for bound, count in zip(snapshot.bounds, snapshot.counts, strict=True)
    ]
    buckets.append(("+Inf", float(snapshot.total_count)))
    histogram.add_metric(list(labels.values()), buckets, snapshot.total_sum)
    return histogram
