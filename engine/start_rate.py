"""How often a request of the queue starts. Time is passed in; the caller sees to locking."""

from __future__ import annotations

from collections import deque

_NUM_RECENT = 32


class StartRate:
    """The mean time between two starts while others wait.

    A start without a wait tells how idle the engine is, not how fast its queue moves, and neither
    does the time in which nobody waits: both are left out.
    """

    def __init__(self) -> None:
        self._intervals_s: deque[float] = deque(maxlen=_NUM_RECENT)
        self._since_s: float | None = None  # the newest start, or the queue's; None: nobody waits

    def queue_formed(self, now_s: float) -> None:
        """A request has to wait; only the first one counts."""
        if self._since_s is None:
            self._since_s = now_s

    def queue_emptied(self) -> None:
        self._since_s = None

    def started(self, now_s: float, arrived_s: float) -> None:
        """A request that had to wait has started."""
        since_s = arrived_s if self._since_s is None else self._since_s
        self._intervals_s.append(max(0.0, now_s - since_s))
        self._since_s = now_s

    def interval_s(self, now_s: float) -> float | None:
        """None before the first start. A start that is overdue makes it longer."""
        if not self._intervals_s:
            return None
        num_starts, total_s = len(self._intervals_s), sum(self._intervals_s)
        mean_s = total_s / num_starts
        silent_s = 0.0 if self._since_s is None else now_s - self._since_s
        return mean_s if silent_s <= mean_s else (total_s + silent_s) / (num_starts + 1)
