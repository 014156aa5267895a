"""What the engine's loop has to tell, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from engine.config import ModelInfo
from engine.request import RequestOutput, RequestProgress
from engine.stats import EngineStats


class Reading(NamedTuple):
    """How the engine does, and where each live request stands, by its id."""

    stats: EngineStats
    progress: Mapping[str, RequestProgress]


class LoopNews(NamedTuple):
    """Everything that one step, or one turn without a step, has brought."""

    time_s: float  # monotonic clock
    outputs: tuple[RequestOutput, ...] = ()
    started: tuple[str, ...] = ()  # ids of requests that run now, for the first time
    reading: Reading | None = None


class Outlet(Protocol):
    """Takes the loop's news; called by the loop's thread alone, and must not wait for anybody."""

    def loading(self, message: str) -> None:
        """One sentence on what is being loaded."""

    def ready(self, info: ModelInfo) -> None:
        """The model is loaded; requests are taken from now on."""

    def news(self, news: LoopNews) -> None: ...

    def load_failed(self, message: str) -> None:
        """Nothing comes after this."""

    def died(self, what: str) -> None:
        """The loop has ended, whatever its requests wait for. Nothing comes after this.

        `what` is the beginning of a sentence, whose end says how it goes on.
        """

    def stopped(self) -> None:
        """The loop has ended as it was asked to. Nothing comes after this."""
