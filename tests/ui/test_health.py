"""GET /health: ready, loading, failed, and stuck although there is work."""

from __future__ import annotations

import threading

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from engine import EngineState, EngineStatus
from tests.engine_factories import make_generation_request, start_engine, wait_until
from tests.factories import make_engine_stats
from tests.fake_runner import FakeRunner
from tests.fakes import IdleEngine
from ui.health import Health, Liveness, health_router

READY = EngineStatus(EngineState.READY, "Ready.")


def test_a_ready_engine_is_healthy_however_long_it_idles() -> None:
    liveness = Liveness(stall_timeout_s=10)
    for now_s in (0.0, 1000.0, 1e6):
        assert liveness.judge(READY, make_engine_stats(), now_s) == Health(True, "ok", "Ready.")


@pytest.mark.parametrize(
    "state", [EngineState.LOADING, EngineState.RESTARTING, EngineState.FAILED, EngineState.STOPPED]
)
def test_only_a_ready_engine_is_healthy(state: EngineState) -> None:
    health = Liveness(10).judge(EngineStatus(state, "So it is."), make_engine_stats(), 0.0)
    assert health == Health(False, state.value, "So it is.")


def test_br_38_work_without_steps_is_a_stall() -> None:
    liveness = Liveness(stall_timeout_s=10)
    busy = make_engine_stats(num_waiting=1, num_steps_total=5)
    assert liveness.judge(READY, busy, 100.0).is_healthy
    assert liveness.judge(READY, busy, 110.0).is_healthy
    assert liveness.judge(READY, busy, 112.0) == Health(
        False, "stalled", "Requests wait and no step has ended in 12 seconds."
    )


def test_br_34_steps_that_end_keep_a_busy_engine_healthy() -> None:
    liveness = Liveness(stall_timeout_s=10)
    for num_steps in range(20):
        busy = make_engine_stats(num_running=1, num_steps_total=num_steps)
        assert liveness.judge(READY, busy, num_steps * 9.0).is_healthy


def test_the_time_starts_anew_with_work_after_idleness() -> None:
    liveness = Liveness(stall_timeout_s=10)
    busy = make_engine_stats(num_running=1, num_steps_total=5)
    liveness.judge(READY, busy, 0.0)
    liveness.judge(READY, make_engine_stats(num_steps_total=5), 5.0)
    assert liveness.judge(READY, busy, 1000.0).is_healthy


def test_the_time_starts_anew_with_a_new_process() -> None:
    liveness = Liveness(stall_timeout_s=10)
    busy = make_engine_stats(num_running=1, num_steps_total=5)
    liveness.judge(READY, busy, 0.0)
    restarting = EngineStatus(EngineState.RESTARTING, "It starts again.", 1)
    assert liveness.judge(restarting, busy, 15.0) == Health(False, "restarting", "It starts again.")
    assert liveness.judge(READY, busy, 20.0).is_healthy


def test_the_route_says_200_or_503_with_a_reason() -> None:
    engine = IdleEngine(EngineState.LOADING)
    app = FastAPI()
    app.include_router(health_router(engine=engine, stall_timeout_s=10))
    client = TestClient(app)
    loading = client.get("/health")
    assert (loading.status_code, loading.headers["retry-after"]) == (503, "5")
    assert loading.json() == {"status": "loading", "message": "The model is loading."}
    engine.state, engine.reading = EngineState.READY, make_engine_stats()
    ready = client.get("/health")
    assert (ready.status_code, ready.json()["status"]) == (200, "ok")


def test_br_34_a_stuck_step_fails_the_check_until_it_ends() -> None:
    gate, runner = threading.Event(), FakeRunner(8)
    runner.fault = lambda batch: gate.wait(10) and None
    engine = start_engine(runner)
    app = FastAPI()
    app.include_router(health_router(engine=engine, stall_timeout_s=0.05))
    client = TestClient(app)
    assert client.get("/health").status_code == 200
    stream = engine.submit(make_generation_request())  # held: one that nobody holds is aborted
    wait_until(lambda: client.get("/health").json()["status"] == "stalled")
    gate.set()
    wait_until(lambda: client.get("/health").status_code == 200)
    stream.close()
    engine.stop()
