"""Says how far a download is. Stands in for the progress bars that huggingface_hub makes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from engine.model.bundled import Report

_INTERVAL_S = 0.5
_GIGABYTE = 1_000_000_000


class DownloadMeter:
    """`bar` goes to huggingface_hub as its `tqdm_class`; `report` gets a sentence now and then."""

    def __init__(
        self,
        name: str,
        total_bytes: int,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._total_bytes = total_bytes
        self._report = report
        self._clock = clock
        self._bars: list[DownloadBar] = []
        self._lock = threading.Lock()  # each file has a thread of its own
        self._reported_s = clock() - _INTERVAL_S

    def bar(self, *_: Any, **facts: Any) -> DownloadBar:
        """One of the bars of a download: of bytes from the network, of bytes on the disk."""
        bar = DownloadBar(self)
        if facts.get("unit") == "B":  # others count files
            self._bars.append(bar)
        return bar

    def add(self, bar: DownloadBar, amount: float) -> None:
        """Count, and say so unless something was said just now."""
        with self._lock:
            bar.n += amount
            now = self._clock()
            if not self._total_bytes or now - self._reported_s < _INTERVAL_S:
                return
            self._reported_s = now
            self._report(self._sentence(max((other.n for other in self._bars), default=0)))

    def _sentence(self, done_bytes: float) -> str:
        is_large = self._total_bytes >= _GIGABYTE
        unit, divisor = ("GB", _GIGABYTE) if is_large else ("MB", 1_000_000)
        done, total = (min(done_bytes, self._total_bytes) / divisor, self._total_bytes / divisor)
        return f"Fetching {self._name}: {done:.1f} of {total:.1f} {unit}."


class DownloadBar:
    """What huggingface_hub uses of a tqdm bar; shows nothing itself."""

    format_dict: Mapping[str, None] = {"rate": None}

    def __init__(self, meter: DownloadMeter) -> None:
        self.n = 0.0
        self.total: float | None = None
        self._meter = meter

    def update(self, amount: float | None = 1) -> None:
        """`amount` is negative where bytes must be fetched once more."""
        self._meter.add(self, amount or 0)

    def refresh(self, *_: Any, **__: Any) -> None:
        pass

    close = set_postfix_str = set_description = set_description_str = refresh

    def __enter__(self) -> DownloadBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass
