"""The sampler: one sample from many sources, whatever fails, and a thread that ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

from engine.telemetry.history import History
from engine.telemetry.monitor import Monitor, Sampler
from engine.telemetry.snapshot import GpuReading, GpuSnapshot, HostSnapshot
from tests.factories import make_engine_stats, make_monitor_sample

HOST = HostSnapshot(num_cpus=2, cpu_pct=12.5)
GPUS = GpuReading((GpuSnapshot(index=0),), None)


class FakeGpuReader:
    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        self.is_closed = False

    def read(self, now_s: float) -> GpuReading:
        self._before()
        return GPUS

    def close(self) -> None:
        self.is_closed = True


class FakeHostReader:
    def read(self, time_s: float) -> HostSnapshot:
        return HOST


def fail() -> NoReturn:
    raise RuntimeError("no")


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_sample_joins_all_sources() -> None:
    stats = make_engine_stats(num_running=3)
    sample = Sampler(lambda: stats, FakeGpuReader(), FakeHostReader()).sample(1000.0, 5.0)
    assert sample == make_monitor_sample(
        time_s=1000.0, monotonic_s=5.0, gpus=GPUS.gpus, host=HOST, engine=stats
    )


def test_br_52_a_source_that_raises_is_missing_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sampler = Sampler(fail, FakeGpuReader(), FakeHostReader())
    samples = [sampler.sample(float(second), float(second)) for second in range(5)]
    assert [sample.engine for sample in samples] == [None] * 5
    assert [sample.host for sample in samples] == [HOST] * 5
    assert caplog.messages == ["Reading engine figures failed."]


def test_a_gpu_reader_that_raises_is_told_in_one_sentence() -> None:
    sample = Sampler(lambda: None, FakeGpuReader(fail), FakeHostReader()).sample(0.0, 0.0)
    assert sample.gpus == ()
    assert sample.no_gpu_reason == "No GPU figures: reading them failed; see the log."


def test_history_is_bounded_and_in_order() -> None:
    history = History(max_samples=3)
    assert history.latest() is None
    for second in range(5):
        history.append(make_monitor_sample(monotonic_s=float(second)))
    assert [sample.monotonic_s for sample in history.since()] == [2.0, 3.0, 4.0]
    assert [sample.monotonic_s for sample in history.since(3.0)] == [4.0]
    assert history.latest() == make_monitor_sample(monotonic_s=4.0)


def test_a_monitor_samples_until_it_is_stopped() -> None:
    gpus = FakeGpuReader()
    monitor = Monitor(lambda: None, nvml=gpus, host=FakeHostReader(), interval_s=0.01)
    assert (monitor.latest(), monitor.age_s(), monitor.is_running) == (None, None, False)
    monitor.start()
    wait_until(lambda: len(monitor.history()) >= 3)
    assert monitor.is_running
    monitor.stop()
    assert not monitor.is_running
    assert gpus.is_closed
    assert not [thread for thread in threading.enumerate() if thread.name == "monitor"]


def test_ten_minutes_are_kept() -> None:
    monitor = Monitor(
        lambda: None, nvml=FakeGpuReader(), host=FakeHostReader(), interval_s=0.001, history_s=0.02
    )
    monitor.start()
    wait_until(lambda: len(monitor.history()) == 20)
    first_s = monitor.history()[0].monotonic_s
    wait_until(lambda: monitor.history()[0].monotonic_s > first_s)
    monitor.stop()
    assert len(monitor.history()) == 20


def test_a_driver_that_hangs_blocks_only_the_sampler_and_shows_as_age(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.telemetry.monitor.JOIN_TIMEOUT_S", 0.05)
    hanging, released = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        released.wait()

    monitor = Monitor(lambda: None, nvml=FakeGpuReader(hang), host=FakeHostReader())
    monitor.start()
    assert hanging.wait(10)
    assert monitor.latest() is None
    with caplog.at_level(logging.WARNING):
        monitor.stop()
    assert caplog.messages == ["The GPU driver hangs; its reader is left behind."]
    released.set()


def test_the_age_of_the_newest_sample_grows() -> None:
    monitor = Monitor(lambda: None, nvml=FakeGpuReader(), host=FakeHostReader(), interval_s=60.0)
    monitor.start()
    wait_until(lambda: monitor.age_s() is not None)
    age_s = monitor.age_s()
    assert age_s is not None
    wait_until(lambda: (monitor.age_s() or 0.0) > age_s)
    monitor.stop()  # does not wait for the rest of the minute
