"""When a process that ended is started again, and when no more. Time is passed in."""

from __future__ import annotations

from collections import deque

WINDOW_S = 300.0
MAX_USELESS = 3  # ends within the window, of processes that served nothing
_MAX_DELAY_S = 30.0


class RestartPolicy:
    """The first time at once, then after 1, 3, 7, 15, 30 s; in vain too often: never."""

    def __init__(self) -> None:
        self._ended_s: deque[float] = deque()
        self._useless_s: deque[float] = deque()

    def delay_s(self, now_s: float, *, has_served: bool) -> float | None:
        """A process has ended: seconds until the next start, or None to give up."""
        self._ended_s.append(now_s)
        if has_served:
            self._useless_s.clear()
        else:
            self._useless_s.append(now_s)
        for times_s in (self._ended_s, self._useless_s):
            while times_s and times_s[0] < now_s - WINDOW_S:
                times_s.popleft()
        if len(self._useless_s) >= MAX_USELESS:
            return None
        return min(_MAX_DELAY_S, 2.0 ** min(10, len(self._ended_s) - 1) - 1)
