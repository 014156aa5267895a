"""Loading, dying and stopping; the model is a FakeRunner with blocks of 8 tokens."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from engine.batch import ScheduledBatch
from engine.engine import EngineState
from engine.errors import EngineDeadError, EngineNotReadyError, ModelLoadError
from engine.request import FinishReason
from tests.engine_factories import (
    Gate,
    make_engine,
    read_all,
    start_engine,
    submit,
    wait_until,
)
from tests.fake_runner import FakeRunner

PROMPT = tuple(range(40, 60))


def test_loading_is_told_and_refuses_requests() -> None:
    may_load = threading.Event()

    def load(config: object, report: Any) -> Any:
        report("Loading the weights.")
        assert may_load.wait(10)
        raise ModelLoadError("There is no model at /nowhere: check --model.")

    engine = make_engine(load=load)
    engine.start()
    wait_until(lambda: engine.status().message == "Loading the weights.")
    with pytest.raises(EngineNotReadyError, match="still loading"):
        submit(engine)
    may_load.set()
    wait_until(lambda: engine.status().state is EngineState.FAILED)
    assert engine.status().message == "There is no model at /nowhere: check --model."
    with pytest.raises(EngineDeadError, match="no model at /nowhere"):
        engine.model_info()
    engine.stop()


def test_an_unexpected_failure_while_loading_is_a_sentence() -> None:
    def load(config: object, report: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    engine = start_engine(load=load)
    assert engine.status().state is EngineState.FAILED
    assert "internal error" in engine.status().message


def test_stop_while_loading_returns_soon() -> None:
    reported = threading.Event()

    def load(config: object, report: Any) -> Any:
        while True:
            report("Loading the weights.")
            reported.set()

    engine = make_engine(load=load)
    engine.start()
    assert reported.wait(10)
    engine.stop()
    assert engine.status().state is EngineState.STOPPED


def test_br_38_when_the_loop_dies_every_reader_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = FakeRunner(8)
    runner.fault = gate = Gate()
    engine = start_engine(runner, max_num_seqs=1)
    streams = [submit(engine, f"r{index}", max_tokens=20) for index in range(3)]
    assert gate.reached.wait(10)
    serving = engine._serving
    assert serving is not None

    def die(*values: object) -> None:
        raise MemoryError("the scheduler is broken")

    monkeypatch.setattr(serving.core._scheduler, "schedule", die)
    gate.opened.set()
    for stream in streams:
        output = read_all(stream)
        assert output.finish_reason is FinishReason.ERROR
        assert output.error is not None
        assert "restart Hearth" in output.error
    assert engine.status().state is EngineState.STOPPED
    with pytest.raises(EngineDeadError, match="internal error"):
        submit(engine, "late")
    engine.stop()


def test_br_38_a_failing_forward_ends_its_request_and_the_loop_goes_on() -> None:
    runner = FakeRunner(8)

    def fault(batch: ScheduledBatch) -> None:
        if any(item.request.request_id == "bad" for item in batch.requests):
            raise RuntimeError("out of memory")

    runner.fault = fault
    engine = start_engine(runner)
    bad, good = submit(engine, "bad", max_tokens=5), submit(engine, "good", max_tokens=5)
    assert read_all(bad).finish_reason is FinishReason.ERROR
    assert list(read_all(good).token_ids) == runner.expected_tokens(PROMPT, 5)
    assert read_all(submit(engine, "next", max_tokens=5)).finish_reason is FinishReason.LENGTH
    engine.stop()


def test_stop_ends_every_request() -> None:
    runner = FakeRunner(8)
    engine = start_engine(runner, max_num_seqs=1)
    runner.fault = lambda batch: time.sleep(0.005)
    streams = [submit(engine, f"r{index}", max_tokens=200) for index in range(3)]
    next(iter(streams[0]))
    engine.stop()
    assert [read_all(stream).finish_reason for stream in streams] == [FinishReason.ABORT] * 3
    with pytest.raises(EngineDeadError, match="has been stopped"):
        submit(engine, "late")


def test_an_engine_that_never_started_can_be_stopped() -> None:
    make_engine().stop()


def test_br_52_figures_that_cannot_be_read_do_not_stop_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = start_engine()
    serving = engine._serving
    assert serving is not None
    monkeypatch.setattr(serving.core, "stats", lambda: 1 / 0)
    assert read_all(submit(engine, max_tokens=5)).finish_reason is FinishReason.LENGTH
    engine.stop()


def test_waiting_work_shows_while_a_step_hangs() -> None:
    runner = FakeRunner(8)
    runner.fault = gate = Gate()
    engine = start_engine(runner)
    stream = submit(engine, max_tokens=1)
    wait_until(lambda: (stats := engine.stats()) is not None and stats.num_waiting == 1)
    gate.opened.set()
    assert read_all(stream).finish_reason is FinishReason.LENGTH
    engine.stop()
