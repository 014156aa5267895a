"""The newest samples, in order, bounded. One thread appends, any thread reads."""

from __future__ import annotations

import threading
from collections import deque

from engine.telemetry.snapshot import MonitorSample


class History:
    def __init__(self, max_samples: int) -> None:
        self._samples: deque[MonitorSample] = deque(maxlen=max_samples)
        self._lock = threading.Lock()

    def append(self, sample: MonitorSample) -> None:
        with self._lock:
            self._samples.append(sample)

    def latest(self) -> MonitorSample | None:
        with self._lock:
            return self._samples[-1] if self._samples else None

    def since(self, monotonic_s: float | None = None) -> tuple[MonitorSample, ...]:
        """Samples taken after that moment; all that are kept for None."""
        with self._lock:
            samples = tuple(self._samples)
        if monotonic_s is None:
            return samples
        return tuple(sample for sample in samples if sample.monotonic_s > monotonic_s)
