"""The dashboard's event stream: the last ten minutes at once, then one row a second.

Streams end when the monitor stops, so whoever ends the server stops the monitor before it waits
for open connections.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine import (
    Engine,
    EngineDeadError,
    EngineNotReadyError,
    EngineStatus,
    GpuSnapshot,
    ModelInfo,
    Monitor,
)
from ui.dashboard_row import HIT_RATE_WINDOW_S, DashboardRow, dashboard_rows

MAX_STREAMS = 64
POLL_S = 0.25
STALE_AFTER_S = 3.0
RECONNECT_MS = 2000

CHARTED = (
    "time_s",
    "num_running",
    "num_waiting",
    "output_tokens_per_s",
    "prompt_tokens_per_s",
    "step_num_requests",
    "step_num_tokens",
    "step_duration_s",
    "num_blocks_in_use",
    "num_blocks_cached",
    "recent_hit_pct",
    "ttft_p50_s",
    "ttft_p95_s",
    "inter_token_p50_s",
    "inter_token_p95_s",
    "cpu_pct",
    "process_cpu_pct",
    "memory_used_bytes",
    "process_memory_bytes",
)
CHARTED_OF_GPU = ("utilization_pct", "memory_used_bytes", "temperature_celsius", "power_watts")
SHOWN_OF_MODEL = (
    "name",
    "device",
    "dtype",
    "kv_scheme",
    "max_model_len",
    "attention_backend",
    "num_parameters",
    "weights_bytes",
    "num_blocks",
    "block_size",
    "kv_bytes_per_token",
)


def dashboard_router(engine: Engine, monitor: Monitor, max_streams: int = MAX_STREAMS) -> APIRouter:
    router = APIRouter()
    open_streams: set[_BoundedStream] = set()

    @router.get("/api/dashboard/stream", include_in_schema=False)
    async def stream(request: Request, since: str | None = None) -> Response:
        if len(open_streams) >= max_streams:
            message = f"{max_streams} dashboards are open already: close one and try again."
            return JSONResponse({"error": message}, 503, {"Retry-After": "10"})
        since_s = _clock(request.headers.get("last-event-id") or since)
        return _BoundedStream(dashboard_events(engine, monitor, since_s), open_streams)

    return router


class _BoundedStream(StreamingResponse):
    """Counts as open from its creation to the end of its connection, however that comes."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], open_streams: set[_BoundedStream]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx: do not buffer
        super().__init__(events, headers=headers)
        self._open_streams = open_streams
        open_streams.add(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open_streams.discard(self)


async def dashboard_events(
    engine: Engine, monitor: Monitor, since_s: float | None
) -> AsyncIterator[str]:
    """Args: since_s: wall clock of the newest row that the page has already."""
    yield f"retry: {RECONNECT_MS}\n\n"
    status = None
    sent_s = None  # monotonic clock of the newest sample sent
    told_age_s = 0
    while monitor.is_running:
        if engine.status() != status:
            status = engine.status()
            yield _event("engine", _engine_state(status, _model_info(engine)))
        if sent_s is None:
            samples = monitor.history()
            rows = dashboard_rows(samples)
            yield _event("history", history_columns(rows, since_s))
            sent_s = samples[-1].monotonic_s if samples else 0.0
            fresh = rows[-1:]
        else:
            fresh, sent_s = _rows_after(monitor, sent_s)
        for row in fresh:
            yield _event("sample", row_json(row), event_id=str(row.time_s))
        age_s = int(monitor.age_s() or 0)
        if age_s >= STALE_AFTER_S and age_s != told_age_s:
            yield _event("stale", {"age_s": age_s})
        told_age_s = age_s
        await asyncio.sleep(POLL_S)


def _rows_after(monitor: Monitor, sent_s: float) -> tuple[list[DashboardRow], float]:
    latest = monitor.latest()
    if latest is None or latest.monotonic_s <= sent_s:
        return [], sent_s
    samples = monitor.history(sent_s - HIT_RATE_WINDOW_S)
    return dashboard_rows(samples, sent_s), samples[-1].monotonic_s


def history_columns(rows: Sequence[DashboardRow], since_s: float | None) -> dict[str, Any]:
    """What the charts need of the rows after `since_s`, one array for each figure."""
    shown = [row for row in rows if since_s is None or row.time_s > since_s]
    columns = {name: [_compact(getattr(row, name)) for row in shown] for name in CHARTED}
    indices = sorted({gpu.index for row in shown for gpu in row.gpus})
    gpus = {str(index): _gpu_columns(shown, index) for index in indices}
    return {"since_s": since_s, "columns": columns, "gpus": gpus}


def _gpu_columns(rows: Sequence[DashboardRow], index: int) -> dict[str, list[Any]]:
    found = [next((gpu for gpu in row.gpus if gpu.index == index), None) for row in rows]
    return {
        name: [None if gpu is None else _compact(getattr(gpu, name)) for gpu in found]
        for name in CHARTED_OF_GPU
    }


def row_json(row: DashboardRow) -> dict[str, Any]:
    figures = _fields(row)
    figures["gpus"] = [_fields(gpu) for gpu in row.gpus]
    return figures


def _fields(figures: DashboardRow | GpuSnapshot) -> dict[str, Any]:
    return {
        field.name: _compact(getattr(figures, field.name)) for field in dataclasses.fields(figures)
    }


def _engine_state(status: EngineStatus, model: ModelInfo | None) -> dict[str, Any]:
    shown = None if model is None else {name: getattr(model, name) for name in SHOWN_OF_MODEL}
    return {"state": status.state.value, "message": status.message, "model": shown}


def _model_info(engine: Engine) -> ModelInfo | None:
    try:
        return engine.model_info()
    except (EngineNotReadyError, EngineDeadError):
        return None


def _event(name: str, content: dict[str, Any], event_id: str | None = None) -> str:
    data = json.dumps(content, separators=(",", ":"), allow_nan=False)
    identity = "" if event_id is None else f"id: {event_id}\n"
    return f"event: {name}\n{identity}data: {data}\n\n"


def _compact(value: Any) -> Any:
    """Floats to what a person can see: six figures, or a hundredth of a second of the clock."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value, 2) if abs(value) >= 1000 else float(f"{value:.6g}")


def _clock(text: str | None) -> float | None:
    """A page that sends nonsense gets the whole history."""
    try:
        time_s = float(text or "")
    except ValueError:
        return None
    return time_s if math.isfinite(time_s) else None
