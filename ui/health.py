"""GET /health: can this server answer? Open to all, for load balancers and supervisors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from engine import Engine, EngineState, EngineStats, EngineStatus
from ui.api.errors import RETRY_WHILE_LOADING_S


class Health(NamedTuple):
    is_healthy: bool
    status: str  # ok, loading, restarting, stalled, failed or stopped
    message: str  # one sentence for people


class Liveness:
    """Tells a busy engine from a stuck one: with work at hand, steps must go on ending.

    The time starts when work is first seen after idleness, or a step is seen to have ended. Time is
    passed in.
    """

    def __init__(self, stall_timeout_s: float) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._num_steps_seen = -1
        self._since_s: float | None = None  # None: no work at the last look

    def judge(self, status: EngineStatus, stats: EngineStats | None, now_s: float) -> Health:
        if status.state is not EngineState.READY or stats is None:
            self._since_s = None
            return Health(False, status.state.value, status.message)
        silent_s = self._silent_s(stats, now_s)
        if silent_s > self._stall_timeout_s:
            message = f"Requests wait and no step has ended in {silent_s:.0f} seconds."
            return Health(False, "stalled", message)
        return Health(True, "ok", status.message)

    def _silent_s(self, stats: EngineStats, now_s: float) -> float:
        if stats.num_running + stats.num_waiting == 0:
            self._since_s = None
            return 0.0
        if self._since_s is None or stats.num_steps_total != self._num_steps_seen:
            self._since_s = now_s
            self._num_steps_seen = stats.num_steps_total
        return now_s - self._since_s


def health_router(
    *, engine: Engine, stall_timeout_s: float, clock: Callable[[], float] = time.monotonic
) -> APIRouter:
    router = APIRouter()
    liveness = Liveness(stall_timeout_s)

    @router.get("/health")
    async def health() -> JSONResponse:
        verdict = liveness.judge(engine.status(), engine.stats(), clock())
        body = {"status": verdict.status, "message": verdict.message}
        if verdict.is_healthy:
            return JSONResponse(body)
        headers = {"Retry-After": str(RETRY_WHILE_LOADING_S)}
        return JSONResponse(body, 503, headers=headers)

    return router
