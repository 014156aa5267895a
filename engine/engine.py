"""The Engine protocol: what the web application knows of generation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from engine.config import ModelInfo
from engine.request import GenerationRequest, RequestOutput, RequestProgress
from engine.stats import EngineStats


class EngineState(StrEnum):
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"  # the engine's process ended; requests are kept until it is back
    FAILED = "failed"  # the model could not be loaded
    STOPPED = "stopped"


class EngineStatus(NamedTuple):
    state: EngineState
    message: str  # one sentence for people: what is being loaded, or what went wrong
    num_restarts: int = 0


class RequestStream(Protocol):
    """One request's outputs, for one reader. Closing it early aborts the request.

    The last output has a finish_reason; iteration ends after it. Safe to read from any thread or
    event loop.
    """

    request_id: str

    @property
    def progress(self) -> RequestProgress: ...

    def __aiter__(self) -> AsyncIterator[RequestOutput]: ...

    def __iter__(self) -> Iterator[RequestOutput]: ...

    def close(self) -> None:
        """Abort if it still runs; does nothing after the end. May be called from any thread."""


class Engine(Protocol):
    """What the web application knows of generation. All methods may be called from any thread."""

    def start(self) -> None:
        """Begin loading and return at once; `status` tells how it goes."""

    def status(self) -> EngineStatus: ...

    def model_info(self) -> ModelInfo:
        """Known from the first READY on, in RESTARTING too.

        Raises EngineNotReadyError while loading, EngineDeadError after a failure or stop.
        """

    def submit(self, request: GenerationRequest) -> RequestStream:
        """Check and queue a request.

        Raises:
            RequestError: it is refused (values, length, queue bounds).
            EngineNotReadyError, EngineDeadError: see `model_info`.
        """

    def abort(self, request_id: str) -> None:
        """End a request within one step. Unknown or ended ids are ignored."""

    def forget(self, conversations: Sequence[str]) -> None:
        """End the requests of these conversations, and remove what only they have left behind.

        Returns at once. What is asked of the engine later finds nothing of it, in no memory and on
        no disk; before the model is loaded, or while it is loaded again, it is done after that.
        """

    def stats(self) -> EngineStats | None:
        """The newest reading; None before the model is loaded."""

    def stop(self) -> None:
        """End every request with ABORT, keep the warmest blocks on disk where there is a cache for
        them, stop the thread, return when it has ended."""
