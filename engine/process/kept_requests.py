"""Every request that has not ended, as it was sent: what a new process is given again."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from engine.loop_news import LoopNews


@dataclass(slots=True)
class KeptRequest:
    request_id: str
    message: bytes  # a SubmitRequest
    deadline_s: float | None
    process_number: int = 0  # of the process that has it; 0: none yet
    num_starts: int = 0  # in how many processes it began to run
    is_aborted: bool = False


class KeptRequests:
    """Thread-safe. Who removes a request is the one that ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, KeptRequest] = {}  # in order of arrival

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: KeptRequest) -> None:
        with self._lock:
            self._requests[request.request_id] = request

    def remove(self, request_id: str) -> bool:
        """False if somebody else has."""
        with self._lock:
            return self._requests.pop(request_id, None) is not None

    def note(self, news: LoopNews) -> None:
        """Who has started, and who has ended."""
        with self._lock:
            for request_id in news.started:
                request = self._requests.get(request_id)
                if request is not None:
                    request.num_starts += 1
            for output in news.outputs:
                if output.finish_reason is not None:
                    self._requests.pop(output.request_id, None)

    def take_unsent(
        self, process_number: int, request_ids: Iterable[str] | None = None
    ) -> list[KeptRequest]:
        """Those, of all or of some, that this process does not have; they count as sent now."""
        with self._lock:
            asked = list(self._requests) if request_ids is None else request_ids
            unsent = [
                request
                for request_id in asked
                if (request := self._requests.get(request_id)) is not None
                and request.process_number != process_number
            ]
            for request in unsent:
                request.process_number = process_number
            return unsent

    def abort(self, request_id: str) -> KeptRequest | None:
        """Mark it: it is not sent again. None if it has ended."""
        with self._lock:
            request = self._requests.get(request_id)
            if request is not None:
                request.is_aborted = True
            return request

    def all(self) -> list[KeptRequest]:
        with self._lock:
            return list(self._requests.values())
