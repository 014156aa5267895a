"""The event stream: history first, then a row a second; bounded, and it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from engine import EngineState, GpuSnapshot, HostSnapshot, Monitor
from engine.telemetry.snapshot import GpuReading
from tests.factories import make_engine_stats, make_model_info, make_monitor_sample
from tests.fakes import IdleEngine
from ui import dashboard_stream
from ui.dashboard_row import DashboardRow, dashboard_row
from ui.dashboard_stream import dashboard_events, dashboard_router, history_columns, row_json

NO_GPU = "No GPU figures: there is no NVIDIA driver on this machine."


class FixedMachine:
    """Stands for both readers of a machine without a GPU."""

    def read(self, now_s: float) -> Any:
        return GpuReading((), NO_GPU)

    def close(self) -> None:
        pass


class FixedHost:
    def read(self, time_s: float) -> HostSnapshot:
        return HostSnapshot(num_cpus=2, cpu_pct=12.5)


class Event(NamedTuple):
    name: str
    event_id: str | None
    content: dict[str, Any]


@contextlib.contextmanager
def running_monitor(interval_s: float = 0.02) -> Iterator[Monitor]:
    monitor = Monitor(
        lambda: make_engine_stats(num_running=3),
        nvml=FixedMachine(),
        host=FixedHost(),
        interval_s=interval_s,
    )
    monitor.start()
    try:
        wait_until(lambda: monitor.latest() is not None)
        yield monitor
    finally:
        monitor.stop()


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_stream, "POLL_S", 0.01)


def parse(text: str) -> Event:
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return Event(fields["event"], fields.get("id"), json.loads(fields["data"]))


async def take(events: AsyncIterator[str], num_events: int) -> list[Event]:
    """The first events after the line that tells the browser when to come back."""
    assert await anext(events) == "retry: 2000\n\n"
    return [parse(await anext(events)) for _ in range(num_events)]


def test_a_stream_tells_the_engine_then_the_history_then_each_sample() -> None:
    engine = IdleEngine(info=make_model_info(name="tiny", num_blocks=64))
    with running_monitor() as monitor:
        events = asyncio.run(take(dashboard_events(engine, monitor, None), 5))
    assert [event.name for event in events] == ["engine", "history", "sample", "sample", "sample"]
    assert events[0].content["state"] == "ready"
    assert events[0].content["model"]["name"] == "tiny"
    assert events[2].content["time_s"] == events[1].content["columns"]["time_s"][-1]
    times = [float(event.event_id or 0) for event in events[2:]]
    assert times == sorted(set(times))
    assert events[4].content["num_running"] == 3
    assert events[4].content["no_gpu_reason"] == NO_GPU


def test_the_engine_is_told_again_when_its_state_changes() -> None:
    engine = IdleEngine(state=EngineState.LOADING)

    async def scenario(monitor: Monitor) -> list[Event]:
        events = dashboard_events(engine, monitor, None)
        first = await take(events, 2)
        engine.state, engine.info = EngineState.READY, make_model_info()
        later = [parse(await anext(events)) for _ in range(20)]
        return [event for event in first + later if event.name == "engine"]

    with running_monitor() as monitor:
        told = asyncio.run(scenario(monitor))
    assert [(event.content["state"], event.content["model"] is None) for event in told] == [
        ("loading", True),
        ("ready", False),
    ]
    assert told[0].content["message"] == "The model is loading."


def test_a_page_that_comes_back_gets_only_what_it_has_not() -> None:
    rows = [DashboardRow(time_s=float(second), num_running=second) for second in range(5)]
    history = history_columns(rows, since_s=2.0)
    assert history["since_s"] == 2.0
    assert history["columns"]["time_s"] == [3.0, 4.0]
    assert history["columns"]["num_running"] == [3, 4]
    assert history["columns"]["ttft_p50_s"] == [None, None]


def test_history_of_gpus_has_gaps_where_one_was_away() -> None:
    gpu = GpuSnapshot(index=1, utilization_pct=80.0)
    rows = [DashboardRow(time_s=1.0), DashboardRow(time_s=2.0, gpus=(gpu,))]
    assert history_columns(rows, None)["gpus"] == {
        "1": {
            "utilization_pct": [None, 80.0],
            "memory_used_bytes": [None, None],
            "temperature_celsius": [None, None],
            "power_watts": [None, None],
        }
    }


def test_a_row_is_plain_json_without_numbers_json_has_not() -> None:
    host = HostSnapshot(cpu_pct=float("nan"), process_cpu_pct=1 / 3, memory_used_bytes=1 << 34)
    sample = make_monitor_sample(
        host=host, gpus=(GpuSnapshot(index=0, throttle_reasons=("heat",)),)
    )
    row = json.loads(json.dumps(row_json(dashboard_row(sample, None)), allow_nan=False))
    assert (row["cpu_pct"], row["process_cpu_pct"]) == (None, 0.333333)
    assert row["memory_used_bytes"] == 1 << 34
    assert row["gpus"][0]["throttle_reasons"] == ["heat"]


def test_a_sampler_that_hangs_is_told_as_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_stream, "STALE_AFTER_S", 1.0)
    with running_monitor(interval_s=60.0) as monitor:
        events = asyncio.run(take(dashboard_events(IdleEngine(), monitor, None), 5))
    assert [event.name for event in events] == ["engine", "history", "sample", "stale", "stale"]
    assert [event.content for event in events[3:]] == [{"age_s": 1}, {"age_s": 2}]


def test_streams_end_when_the_monitor_stops() -> None:
    async def read_all(monitor: Monitor) -> list[str]:
        events = dashboard_events(IdleEngine(), monitor, None)
        await take(events, 3)
        await asyncio.to_thread(monitor.stop)
        return [event async for event in events]

    with running_monitor(interval_s=60.0) as monitor:
        assert asyncio.run(read_all(monitor)) == []


@contextlib.contextmanager
def served(monitor: Monitor, max_streams: int) -> Iterator[str]:
    app = FastAPI()
    app.include_router(dashboard_router(IdleEngine(), monitor, max_streams))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/api/dashboard/stream"
    finally:
        monitor.stop()  # as the web server does, before it waits for connections
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def test_streams_are_bounded_and_a_closed_one_makes_room() -> None:
    with (
        running_monitor() as monitor,
        served(monitor, max_streams=2) as url,
        httpx.Client(trust_env=False) as client,
    ):
        with client.stream("GET", url) as first, client.stream("GET", url) as second:
            assert (first.status_code, second.status_code) == (200, 200)
            assert first.headers["x-accel-buffering"] == "no"
            assert first.headers["content-type"].startswith("text/event-stream")
            refused = client.get(url)
            assert refused.status_code == 503
            assert refused.json() == {
                "error": "2 dashboards are open already: close one and try again."
            }
        wait_until(lambda: _is_accepted(client, url))


def _is_accepted(client: httpx.Client, url: str) -> bool:
    with client.stream("GET", url) as answer:
        return answer.status_code == 200


def test_an_open_stream_does_not_hold_the_server_up() -> None:
    with running_monitor() as monitor, httpx.Client(trust_env=False) as client:
        with served(monitor, max_streams=2) as url:
            answer = client.send(client.build_request("GET", url), stream=True)
            lines = answer.iter_lines()
            assert next(lines) == "retry: 2000"
            assert any(line.startswith("event: ") for line in lines)  # it is under way
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 5
        answer.close()


@pytest.mark.parametrize(
    ("headers", "query", "since_s"),
    [
        ({}, "", None),
        ({}, "?since=12.5", 12.5),
        ({}, "?since=nan", None),
        ({}, "?since=yesterday", None),
        ({"Last-Event-ID": "99.5"}, "?since=12.5", 99.5),
    ],
)
def test_where_a_page_says_it_left_off(
    headers: dict[str, str], query: str, since_s: float | None
) -> None:
    with (
        running_monitor() as monitor,
        served(monitor, max_streams=2) as url,
        httpx.Client(trust_env=False) as client,
        client.stream("GET", url + query, headers=headers) as answer,
    ):
        line = next(line for line in answer.iter_lines() if line.startswith('data: {"since_s"'))
        assert json.loads(line.removeprefix("data: "))["since_s"] == since_s
