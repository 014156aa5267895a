"""Processor and memory of this machine and of this process, through psutil."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psutil

from engine.telemetry.snapshot import HostSnapshot

T = TypeVar("T")


class HostReader:
    """Not thread-safe: shares of the processor are since the reading before."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._has_earlier_reading = False

    def read(self, time_s: float) -> HostSnapshot:
        num_cpus = _known(psutil.cpu_count)
        cpu_pct = _known(lambda: psutil.cpu_percent(interval=None))
        process_pct = _known(lambda: self._process.cpu_percent(interval=None))
        memory = _known(psutil.virtual_memory)
        process_memory = _known(self._process.memory_info)
        started_s = _known(self._process.create_time)
        first = not self._has_earlier_reading  # psutil answers 0.0 then, which means nothing
        self._has_earlier_reading = True
        return HostSnapshot(
            num_cpus=num_cpus,
            cpu_pct=None if first else cpu_pct,
            memory_used_bytes=None if memory is None else memory.total - memory.available,
            memory_total_bytes=None if memory is None else memory.total,
            process_cpu_pct=None if first else _share(process_pct, num_cpus),
            process_memory_bytes=None if process_memory is None else process_memory.rss,
            process_uptime_s=None if started_s is None else max(0.0, time_s - started_s),
        )


def _known(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (psutil.Error, OSError, NotImplementedError):
        return None


def _share(process_pct: float | None, num_cpus: int | None) -> float | None:
    """From psutil's 100 per core to 100 for all of them."""
    if process_pct is None or not num_cpus:
        return None
    return min(100.0, process_pct / num_cpus)
