"""Processes that crash, hang and lose their device; blocks hold 8 tokens."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import pytest

from engine.engine import Engine, EngineState
from engine.errors import EngineDeadError
from engine.process.process_engine import ProcessEngine
from engine.request import FinishReason
from tests.engine_factories import read_all, submit, wait_until
from tests.fake_runner import FakeRunner
from tests.process_loads import FakeLoad, process_engine

PROMPT = tuple(range(40, 60))
COUNTERS = ("num_steps_total", "num_output_tokens_total", "num_prompt_tokens_total")


def kill(engine: ProcessEngine) -> None:
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)


def wait_until_ready(engine: Engine, num_restarts: int) -> None:
    wait_until(
        lambda: (
            engine.status().state is EngineState.READY
            and engine.status().num_restarts == num_restarts
        )
    )


def test_a_crash_ends_answers_with_text_and_runs_the_others_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with process_engine(FakeLoad(step_s=0.005), max_num_seqs=1) as engine:
        shown = submit(engine, "shown", max_tokens=200)
        first = next(iter(shown))
        assert first.text
        waiting = [submit(engine, f"r{index}", max_tokens=9, seed=index) for index in range(3)]
        wait_until(lambda: waiting[2].progress.queue_position == 3)
        with caplog.at_level(logging.ERROR):
            kill(engine)
            cut = read_all(shown)
        assert cut.finish_reason is FinishReason.ERROR
        assert cut.error == (
            "The engine was restarted while this answer was written. What was written is kept; "
            "press Continue to go on."
        )
        for index, stream in enumerate(waiting):
            output = read_all(stream)
            assert output.finish_reason is FinishReason.LENGTH
            assert list(output.token_ids) == FakeRunner(8).expected_tokens(PROMPT, 9, index)
        assert engine.status().num_restarts == 1
        assert "The engine stopped unexpectedly (signal 9, SIGKILL)" in caplog.text


def test_a_request_in_work_without_text_is_run_again(tmp_path: Path) -> None:
    with process_engine(FakeLoad(count_in=tmp_path)) as engine:
        output = read_all(submit(engine, "kill", max_tokens=9))
        assert output.finish_reason is FinishReason.LENGTH
        assert list(output.token_ids) == FakeRunner(8).expected_tokens(PROMPT, 9)
        assert engine.status().num_restarts == 1


def test_what_nobody_has_read_is_run_again_from_its_beginning() -> None:
    with process_engine(FakeLoad(step_s=0.01)) as engine:
        stream = submit(engine, max_tokens=30)
        wait_until(lambda: (stats := engine.stats()) is not None and stats.num_steps_total > 5)
        kill(engine)
        wait_until_ready(engine, 1)
        output = read_all(stream)
        assert list(output.token_ids) == FakeRunner(8).expected_tokens(PROMPT, 30)
        assert output.finish_reason is FinishReason.LENGTH


def test_while_it_restarts_requests_are_kept_and_may_be_aborted(tmp_path: Path) -> None:
    with process_engine(FakeLoad(count_in=tmp_path, later_load_s=1.5)) as engine:
        kill(engine)
        wait_until(lambda: engine.status().state is EngineState.RESTARTING)
        assert engine.status().num_restarts == 1
        assert engine.status().message == (
            "The engine stopped unexpectedly and is starting again; "
            "what waits or is asked now is answered when it is back."
        )
        assert engine.model_info().max_model_len == 256
        kept, aborted = submit(engine, "kept", max_tokens=5), submit(engine, "aborted")
        late = submit(engine, "late", timeout_s=0.2)
        aborted.close()
        started_s = time.monotonic()
        assert read_all(aborted).finish_reason is FinishReason.ABORT
        assert time.monotonic() - started_s < 0.5
        expired = read_all(late)
        assert expired.finish_reason is FinishReason.ERROR
        assert "time limit" in (expired.error or "")
        assert engine.status().state is EngineState.RESTARTING
        assert list(read_all(kept).token_ids) == FakeRunner(8).expected_tokens(PROMPT, 5)
        assert engine.status() == (EngineState.READY, "The model is ready.", 1)


def test_a_stopped_process_with_work_is_replaced() -> None:
    with process_engine(FakeLoad(), engine_hang_timeout_s=1.0) as engine:
        time.sleep(1.5)  # it idles, which is no hang
        assert engine.status().num_restarts == 0
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGSTOP)
        stream = submit(engine, max_tokens=5)
        output = read_all(stream)
        assert list(output.token_ids) == FakeRunner(8).expected_tokens(PROMPT, 5)
        assert engine.status().num_restarts == 1


def test_a_step_that_never_ends_is_ended(tmp_path: Path) -> None:
    load = FakeLoad(count_in=tmp_path, later_load_s=0.5)
    with process_engine(load, engine_hang_timeout_s=2.0) as engine:
        stream = submit(engine, "hang", max_tokens=5)
        wait_until(lambda: engine.status().state is EngineState.RESTARTING)
        assert engine.status().message.startswith("The engine did not respond any more and is")
        assert read_all(stream).finish_reason is FinishReason.LENGTH


def test_a_process_that_hangs_while_it_loads_again_is_ended(tmp_path: Path) -> None:
    load = FakeLoad(count_in=tmp_path, later_load_s=1000)
    with process_engine(load, engine_hang_timeout_s=2.0) as engine:
        stream = submit(engine, "kill", max_tokens=5)
        wait_until(lambda: engine.status().state is EngineState.FAILED, 30)
        assert "did not respond" in engine.status().message
        assert read_all(stream).finish_reason is FinishReason.ERROR


def test_a_long_answer_is_no_hang() -> None:
    with process_engine(FakeLoad(step_s=0.05), engine_hang_timeout_s=0.5) as engine:
        assert read_all(submit(engine, max_tokens=25)).finish_reason is FinishReason.LENGTH
        assert engine.status().num_restarts == 0


@pytest.mark.parametrize(
    ("request_id", "reason"),
    [
        ("device", "The engine stopped because the device it computes on has failed"),
        ("break", "The engine stopped because of an internal error"),
    ],
)
def test_a_lost_device_and_a_broken_loop_need_a_new_process(
    request_id: str, reason: str, tmp_path: Path
) -> None:
    with process_engine(FakeLoad(count_in=tmp_path, later_load_s=0.5)) as engine:
        bad = submit(engine, request_id, max_tokens=5)
        wait_until(lambda: engine.status().state is EngineState.RESTARTING)
        assert engine.status().message.startswith(f"{reason} and is starting again; ")
        assert list(read_all(bad).token_ids) == FakeRunner(8).expected_tokens(PROMPT, 5)


def test_a_request_that_takes_every_process_along_is_given_up() -> None:
    with process_engine() as engine:
        bad = submit(engine, "kill", max_tokens=5)
        output = read_all(bad)
        assert output.finish_reason is FinishReason.ERROR
        assert "twice while it worked on this request" in (output.error or "")
        good = submit(engine, "good", max_tokens=5)
        assert read_all(good).finish_reason is FinishReason.LENGTH
        assert engine.status().num_restarts == 2


def test_crashes_without_an_answer_between_them_are_the_end() -> None:
    with process_engine() as engine:
        for num_restarts in range(2):
            wait_until_ready(engine, num_restarts)
            kill(engine)
        wait_until_ready(engine, 2)
        stream = submit(engine, "kill", max_tokens=5)
        output = read_all(stream)
        assert output.finish_reason is FinishReason.ERROR
        status = engine.status()
        assert (status.state, status.num_restarts) == (EngineState.FAILED, 2)
        assert output.error == status.message
        assert "again and again in vain" in status.message
        assert engine.pid is None
        with pytest.raises(EngineDeadError, match="Restart Hearth"):
            submit(engine, "late")


def test_crashes_with_answers_between_them_are_not() -> None:
    with process_engine() as engine:
        for num_restarts in range(3):
            wait_until_ready(engine, num_restarts)
            read_all(submit(engine, max_tokens=2))
            kill(engine)
        assert read_all(submit(engine, max_tokens=2)).finish_reason is FinishReason.LENGTH
        assert engine.status().num_restarts == 3


def test_a_model_that_cannot_be_loaded_again_is_the_end(tmp_path: Path) -> None:
    with process_engine(FakeLoad(count_in=tmp_path, failing="later")) as engine:
        kill(engine)
        wait_until(lambda: engine.status().state is EngineState.FAILED)
        assert engine.status().message.endswith("There is no model at /nowhere: check --model.")
        assert len((tmp_path / "loads").read_text()) == 3


def test_another_model_in_the_same_place_is_the_end(tmp_path: Path) -> None:
    with process_engine(FakeLoad(count_in=tmp_path, is_another_model=True)) as engine:
        kill(engine)
        wait_until(lambda: engine.status().state is EngineState.FAILED)
        assert "files have changed" in engine.status().message


def test_a_later_process_has_the_pool_of_the_first(tmp_path: Path) -> None:
    with process_engine(FakeLoad(count_in=tmp_path)) as engine:
        info = engine.model_info()
        kill(engine)
        wait_until_ready(engine, 1)
        assert engine.model_info() == info


def test_counters_never_fall() -> None:
    with process_engine(FakeLoad(step_s=0.002), max_num_seqs=4) as engine:
        before = dict.fromkeys(COUNTERS, 0)
        for round_number in range(3):
            wait_until_ready(engine, round_number)
            ids = [f"{round_number}-{index}" for index in range(4)]
            for stream in [submit(engine, request_id, max_tokens=5) for request_id in ids]:
                read_all(stream)
            kill(engine)
            while engine.status().num_restarts <= round_number:
                stats = engine.stats()
                assert stats is not None
                counted = {name: getattr(stats, name) for name in COUNTERS}
                assert all(counted[name] >= before[name] for name in COUNTERS)
                before = counted
        wait_until_ready(engine, 3)
        stats = engine.stats()
        assert stats is not None
        assert (stats.num_output_tokens_total, stats.num_prompt_tokens_total) == (60, 240)
        assert stats.num_requests_finished_total["length"] == 12
        assert stats.num_requests_total == 12
        assert stats.histograms["time_to_first_token_seconds"].total_count == 12
        assert (stats.num_running, stats.num_blocks_free) == (0, 64)


def test_stop_in_the_middle_of_a_restart_is_quick(tmp_path: Path) -> None:
    with process_engine(FakeLoad(count_in=tmp_path, later_load_s=60)) as engine:
        kill(engine)
        wait_until(lambda: engine.status().state is EngineState.RESTARTING)
        stream = submit(engine)
        started_s = time.monotonic()
        engine.stop()
        assert time.monotonic() - started_s < 2
        assert read_all(stream).finish_reason is FinishReason.ABORT


def test_stop_ends_a_process_that_hangs() -> None:
    with process_engine() as engine:
        stream = submit(engine, "hang")
        started_s = time.monotonic()
        engine.stop()
        assert time.monotonic() - started_s < 4
        assert read_all(stream).finish_reason is FinishReason.ABORT
