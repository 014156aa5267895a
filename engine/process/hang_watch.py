"""Tells a process that hangs from one that is busy or idle. Time is passed in."""

from __future__ import annotations

from typing import NamedTuple

_LONG_LOOK_S = 10.0  # looks further apart than this: the watcher itself was held up


class LifeSign(NamedTuple):
    """Changes with every message of every process."""

    process_number: int
    num_messages: int


class HangWatch:
    """With work at hand, messages must go on coming."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sign: LifeSign | None = None
        self._since_s = 0.0
        self._looked_s = float("-inf")

    def is_hung(self, sign: LifeSign, *, has_work: bool, now_s: float) -> bool:
        was_held_up = now_s - self._looked_s > _LONG_LOOK_S
        if sign != self._sign or not has_work or was_held_up:
            self._since_s = now_s
        self._sign, self._looked_s = sign, now_s
        return now_s - self._since_s > self._timeout_s
