"""Immutable readings of the machine. A figure that could not be read is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.stats import EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSnapshot:
    """One GPU, now. `lost` says why it does not answer; every figure is None then."""

    index: int  # NVML's order, not CUDA's
    uuid: str | None = None
    name: str | None = None
    is_ours: bool | None = None  # whether this server may use it; None: cannot be told
    lost: str | None = None
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    own_memory_bytes: int | None = None  # of this server's processes
    num_processes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None  # (): runs at full clocks, or idles


class GpuReading(NamedTuple):
    gpus: tuple[GpuSnapshot, ...]
    no_gpu_reason: str | None  # one sentence, where `gpus` is empty


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    """Shares of the processor are of all its cores together: 100 is everything."""

    num_cpus: int | None = None
    cpu_pct: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    process_cpu_pct: float | None = None
    process_memory_bytes: int | None = None
    process_uptime_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSample:
    time_s: float  # wall clock, for people
    monotonic_s: float  # for differences
    gpus: tuple[GpuSnapshot, ...]
    no_gpu_reason: str | None
    host: HostSnapshot
    engine: EngineStats | None  # None while the model is loading
