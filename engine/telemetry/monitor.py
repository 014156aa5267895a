"""One sampler thread for every viewer: machine and engine once a second, ten minutes kept.

Device drivers may hang; then only this thread waits, and the age of the newest sample tells it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from engine.stats import EngineStats
from engine.telemetry.history import History
from engine.telemetry.host import HostReader
from engine.telemetry.nvml import NvmlReader
from engine.telemetry.snapshot import GpuReading, HostSnapshot, MonitorSample

HISTORY_S = 600.0
JOIN_TIMEOUT_S = 2.0

T = TypeVar("T")


class GpuReader(Protocol):
    def read(self, now_s: float) -> GpuReading: ...

    def close(self) -> None: ...


class MachineReader(Protocol):
    def read(self, time_s: float) -> HostSnapshot: ...


class Sampler:
    """Takes one sample. What cannot be read is missing from it; it never raises."""

    def __init__(
        self,
        engine_stats: Callable[[], EngineStats | None],
        gpu_reader: GpuReader,
        host_reader: MachineReader,
    ) -> None:
        self._engine_stats = engine_stats
        self._gpu_reader = gpu_reader
        self._host_reader = host_reader
        self._failing: set[str] = set()

    def sample(self, time_s: float, monotonic_s: float) -> MonitorSample:
        gpus = self._guard("GPU", lambda: self._gpu_reader.read(monotonic_s))
        reading = gpus or GpuReading((), "No GPU figures: reading them failed; see the log.")
        host = self._guard("host", lambda: self._host_reader.read(time_s))
        return MonitorSample(
            time_s=time_s,
            monotonic_s=monotonic_s,
            gpus=reading.gpus,
            no_gpu_reason=reading.no_gpu_reason,
            host=host or HostSnapshot(),
            engine=self._guard("engine", self._engine_stats),
        )

    def _guard(self, source: str, read: Callable[[], T]) -> T | None:
        try:
            value = read()
        except Exception:
            if source not in self._failing:  # one line for a fault that lasts
                logging.getLogger(__name__).exception("Reading %s figures failed.", source)
            self._failing.add(source)
            return None
        self._failing.discard(source)
        return value


class Monitor:
    """All methods may be called from any thread."""

    def __init__(
        self,
        engine_stats: Callable[[], EngineStats | None],
        *,
        nvml: GpuReader | None = None,
        host: MachineReader | None = None,
        interval_s: float = 1.0,
        history_s: float = HISTORY_S,
    ) -> None:
        self._gpu_reader = NvmlReader() if nvml is None else nvml
        self._sampler = Sampler(
            engine_stats, self._gpu_reader, HostReader() if host is None else host
        )
        self._interval_s = interval_s
        self._history = History(max_samples=max(1, round(history_s / interval_s)))
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and not self._stopping.is_set()

    def start(self) -> None:
        """Begin sampling; once in a monitor's life."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End sampling, and with it every stream of samples. A driver that hangs is left behind."""
        self._stopping.set()
        if self._thread is None:
            return
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            logging.getLogger(__name__).warning("The GPU driver hangs; its reader is left behind.")

    def latest(self) -> MonitorSample | None:
        return self._history.latest()

    def history(self, since_s: float | None = None) -> tuple[MonitorSample, ...]:
        """The samples of the last ten minutes, or those after a moment of the monotonic clock."""
        return self._history.since(since_s)

    def age_s(self) -> float | None:
        """Seconds since the newest sample; None before the first."""
        sample = self._history.latest()
        return None if sample is None else time.monotonic() - sample.monotonic_s

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.is_set():
            self._history.append(self._sampler.sample(time.time(), time.monotonic()))
            # A late sample moves the later ones: there is no catching up in a burst.
            due_s = max(due_s + self._interval_s, time.monotonic())
            self._stopping.wait(due_s - time.monotonic())
        self._gpu_reader.close()
