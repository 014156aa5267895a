"""This process and its children, the engine's among them: what they take together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


class ProcessTree:
    """Not thread-safe: shares of the processor are since the reading before.

    Children that come and go between two readings are told by nobody.
    """

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._known: dict[int, psutil.Process] = {self._own.pid: self._own}
        self._measured: set[int] = set()  # pids with an earlier reading of the processor

    def process_ids(self) -> frozenset[int]:
        self._update()
        return frozenset(self._known)

    def cpu_pct(self) -> float | None:
        """100 for each core; None at first, and where the system refuses it."""
        self._update()
        shares: list[float] = []
        for pid, process in self._known.items():
            share = known(process.cpu_percent)
            if share is not None and pid in self._measured:
                shares.append(share)
            self._measured.add(pid)
        return sum(shares) if shares else None

    def memory_bytes(self) -> int | None:
        """Resident. What processes share, such as code of libraries, counts in each."""
        self._update()
        sizes = [known(process.memory_info) for process in self._known.values()]
        resident = [size.rss for size in sizes if size is not None]
        return sum(resident) if resident else None

    def started_s(self) -> float | None:
        """When this process began, by the wall clock."""
        return known(self._own.create_time)

    def _update(self) -> None:
        """A process keeps its object while it lives: that holds its earlier reading."""
        children = known(lambda: self._own.children(recursive=True)) or []
        found = {process.pid: process for process in (self._own, *children)}
        kept = {pid: old for pid, old in self._known.items() if found.get(pid) == old}
        self._known = found | kept
        self._measured &= kept.keys()


def known(read: Callable[[], T]) -> T | None:
    """None where the system refuses, or the process has ended."""
    try:
        return read()
    except (psutil.Error, OSError, NotImplementedError):
        return None
