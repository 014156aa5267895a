"""Processor and memory of this machine and of this server's processes, through psutil."""

from __future__ import annotations

import psutil

from engine.telemetry.process_tree import ProcessTree, known
from engine.telemetry.snapshot import HostSnapshot


class HostReader:
    """Not thread-safe: shares of the processor are since the reading before."""

    def __init__(self) -> None:
        self._processes = ProcessTree()
        self._has_earlier_reading = False

    def read(self, time_s: float) -> HostSnapshot:
        num_cpus = known(psutil.cpu_count)
        cpu_pct = known(lambda: psutil.cpu_percent(interval=None))
        memory = known(psutil.virtual_memory)
        started_s = self._processes.started_s()
        first = not self._has_earlier_reading  # psutil answers 0.0 then, which means nothing
        self._has_earlier_reading = True
        return HostSnapshot(
            num_cpus=num_cpus,
            cpu_pct=None if first else cpu_pct,
            memory_used_bytes=None if memory is None else memory.total - memory.available,
            memory_total_bytes=None if memory is None else memory.total,
            process_cpu_pct=_share(self._processes.cpu_pct(), num_cpus),
            process_memory_bytes=self._processes.memory_bytes(),
            process_uptime_s=None if started_s is None else max(0.0, time_s - started_s),
        )


def _share(process_pct: float | None, num_cpus: int | None) -> float | None:
    """From psutil's 100 per core to 100 for all of them."""
    if process_pct is None or not num_cpus:
        return None
    return min(100.0, process_pct / num_cpus)
