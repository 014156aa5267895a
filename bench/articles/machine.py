"""What a run takes of the machine, as Hearth's own monitor sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple

from engine import EngineStats, Monitor, MonitorSample

_INTERVAL_S = 0.2
_GIGABYTE = 1_000_000_000


class MachineUse(NamedTuple):
    """Of the GPU where there is one, else of the processor; None where it cannot be read."""

    memory_bytes: int | None  # the highest
    utilization_pct: float | None  # on average; all cores together are 100

    @property
    def memory(self) -> str:
        return "-" if self.memory_bytes is None else f"{self.memory_bytes / _GIGABYTE:.1f} GB"

    @property
    def utilization(self) -> str:
        return "-" if self.utilization_pct is None else f"{self.utilization_pct:.0f} %"


class MachineWatch:
    """Samples while its block runs; `use` is what came of it."""

    def __init__(self, engine_stats: Callable[[], EngineStats | None] = lambda: None) -> None:
        self._monitor = Monitor(engine_stats, interval_s=_INTERVAL_S)

    def __enter__(self) -> MachineWatch:
        self._monitor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._monitor.stop()

    @property
    def samples(self) -> tuple[MonitorSample, ...]:
        return self._monitor.history()

    @property
    def use(self) -> MachineUse:
        samples = self.samples
        gpus = [gpu for sample in samples for gpu in sample.gpus if gpu.is_ours is not False]
        if gpus:
            memory = [gpu.own_memory_bytes or gpu.memory_used_bytes for gpu in gpus]
            return MachineUse(_highest(memory), _mean(gpu.utilization_pct for gpu in gpus))
        hosts = [sample.host for sample in samples]
        return MachineUse(
            _highest(host.process_memory_bytes for host in hosts),
            _mean(host.process_cpu_pct for host in hosts),
        )


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
