"""What a step will compute, while the scheduler is still deciding."""

from __future__ import annotations

from typing import NamedTuple

from engine.request import Request


class PlannedChunk(NamedTuple):
    request: Request
    num_tokens: int

    @property
    def samples(self) -> bool:
        return self.request.num_computed_tokens + self.num_tokens == self.request.num_tokens


class StepPlan:
    """Chunks by request, in the order in which they were planned."""

    def __init__(self) -> None:
        self._chunks: dict[str, PlannedChunk] = {}

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, request: Request) -> bool:
        return request.request_id in self._chunks

    def add(self, request: Request, num_tokens: int) -> None:
        self._chunks[request.request_id] = PlannedChunk(request, num_tokens)

    def drop(self, request: Request) -> None:
        self._chunks.pop(request.request_id, None)

    def chunks(self) -> list[PlannedChunk]:
        return list(self._chunks.values())
