"""An engine in a process of its own against one in a thread; blocks hold 8 tokens."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import psutil
import pytest

from engine.config import EngineConfig
from engine.engine import Engine, EngineState
from engine.errors import (
    ContextLengthError,
    EngineDeadError,
    EngineNotReadyError,
    InvalidParameterError,
    QueueFullError,
)
from engine.process.process_engine import ProcessEngine
from engine.request import FinishReason, RequestOutput, RequestStatus
from tests.engine_factories import read_all, start_engine, submit, wait_until
from tests.fake_runner import FakeRunner
from tests.process_loads import FakeLoad, process_engine

PROMPT = tuple(range(40, 60))


class AnyToken:
    """A constraint, which is an object of this process."""

    def allowed_token_ids(self, output_token_ids: Sequence[int]) -> None:
        return None


def whole_reply(engine: Engine, index: int) -> RequestOutput:
    """All outputs as one, without what depends on the clock."""
    stream = submit(engine, f"r{index}", max_tokens=9 + index % 5, seed=index, stop=("zz", "?"))
    outputs = list(stream)
    return replace(
        outputs[-1],
        text="".join(output.text for output in outputs),
        token_ids=tuple(token_id for output in outputs for token_id in output.token_ids),
        timings=None,
    )


def is_idle(engine: Engine) -> bool:
    stats = engine.stats()
    return stats is not None and stats.num_running + stats.num_waiting == 0


def own_children() -> list[psutil.Process]:
    """Engines of this process; a server that other tests share has one of its own below it."""
    return [
        child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())
    ]


def test_replies_are_those_of_an_engine_in_this_process() -> None:
    in_process = start_engine()
    with process_engine() as engine:
        for index in range(20):
            assert whole_reply(engine, index) == whole_reply(in_process, index)
        assert engine.model_info().max_model_len == in_process.model_info().max_model_len
    in_process.stop()


def test_many_at_once_get_what_the_model_says() -> None:
    with process_engine(max_num_seqs=8) as engine:
        streams = [submit(engine, f"r{index}", max_tokens=15, seed=index) for index in range(40)]
        for index, stream in enumerate(streams):
            output = read_all(stream)
            assert list(output.token_ids) == FakeRunner(8).expected_tokens(PROMPT, 15, index)
        stats = engine.stats()
    assert stats is not None
    assert (stats.num_requests_total, stats.num_output_tokens_total) == (40, 600)
    assert stats.num_requests_finished_total["length"] == 40


def test_readers_may_be_async() -> None:
    with process_engine() as engine:

        async def read_one(index: int) -> list[int]:
            stream = submit(engine, f"r{index}", max_tokens=9, seed=index)
            return [token async for output in stream for token in output.token_ids]

        async def read_everything() -> list[list[int]]:
            return await asyncio.gather(*(read_one(index) for index in range(8)))

        replies = asyncio.run(read_everything())
    assert replies == [FakeRunner(8).expected_tokens(PROMPT, 9, index) for index in range(8)]


def test_what_is_refused_is_refused_in_the_callers_thread() -> None:
    with process_engine() as engine:
        with pytest.raises(ContextLengthError):
            submit(engine, prompt=[1] * 256)
        with pytest.raises(InvalidParameterError, match="cannot call: leave it out") as caught:
            submit(engine, constraint=AnyToken())
        assert caught.value.field == "constraint"
        with pytest.raises(InvalidParameterError, match="number in this request is too large"):
            submit(engine, top_k=10**30)
        with pytest.raises(InvalidParameterError, match="half a character"):
            submit(engine, stop=("\ud800",))
        # none of them is in the way of a good one with their id
        assert read_all(submit(engine, max_tokens=3)).finish_reason is FinishReason.LENGTH
        stats = engine.stats()
    assert stats is not None
    assert stats.num_requests_refused_total == 1  # by admission; the others never were counted in


def test_the_queue_bound_holds() -> None:
    with process_engine(FakeLoad(step_s=0.05), max_num_seqs=1, max_queued_requests=1) as engine:
        streams = [submit(engine, "r0", max_tokens=3)]
        wait_until(lambda: streams[0].progress.status is RequestStatus.RUNNING)
        streams.append(submit(engine, "r1", max_tokens=3))
        with pytest.raises(QueueFullError):
            submit(engine, "r2", max_tokens=3)
        assert [read_all(stream).finish_reason for stream in streams] == [FinishReason.LENGTH] * 2


def test_br_35_an_abort_before_the_first_token_ends_the_work() -> None:
    with process_engine(FakeLoad(step_s=0.02), max_num_batched_tokens=32) as engine:
        stream = submit(engine, prompt=[1] * 200, max_tokens=50)
        wait_until(lambda: stream.progress.status is RequestStatus.RUNNING)
        for _ in range(5):
            stream.close()
        output = read_all(stream)
        assert (output.finish_reason, output.token_ids) == (FinishReason.ABORT, ())
        engine.abort("nobody")
        wait_until(lambda: is_idle(engine))
        stats = engine.stats()
    assert stats is not None
    assert (stats.num_blocks_in_use, stats.num_requests_finished_total["abort"]) == (0, 1)


def test_a_stream_nobody_holds_is_aborted() -> None:
    with process_engine(FakeLoad(step_s=0.005)) as engine:
        stream = submit(engine, max_tokens=200)
        next(iter(stream))
        del stream
        gc.collect()
        wait_until(lambda: is_idle(engine))
        stats = engine.stats()
    assert stats is not None
    assert stats.num_requests_finished_total["abort"] == 1


def test_progress_names_the_place_and_the_expected_wait() -> None:
    with process_engine(FakeLoad(step_s=0.005), max_num_seqs=1) as engine:
        streams = [submit(engine, f"r{index}", max_tokens=40) for index in range(4)]
        last = streams[-1]
        wait_until(lambda: last.progress.queue_position == 3)
        assert last.progress.expected_wait_s is None  # nothing has started from the queue yet
        read_all(streams[0])
        wait_until(lambda: last.progress.queue_position == 2)
        wait_until(lambda: last.progress.expected_wait_s is not None)
        expected_s = last.progress.expected_wait_s
        assert expected_s is not None
        assert 0.1 < expected_s < 5.0
        for stream in streams[1:]:
            read_all(stream)
        assert last.progress.status is RequestStatus.FINISHED


def test_nothing_is_left_after_the_end() -> None:
    num_threads = threading.active_count()
    with process_engine(FakeLoad(step_s=0.01), max_num_seqs=1) as engine:
        assert [child.pid for child in own_children()] == [engine.pid]
        streams = [submit(engine, f"r{index}", max_tokens=200) for index in range(3)]
        next(iter(streams[0]))
        started_s = time.monotonic()
        engine.stop()
        assert time.monotonic() - started_s < 2
        assert engine.status().state is EngineState.STOPPED
        assert [read_all(stream).finish_reason for stream in streams] == [FinishReason.ABORT] * 3
        with pytest.raises(EngineDeadError, match="has been stopped"):
            submit(engine, "late")
        assert (own_children(), threading.active_count()) == ([], num_threads)


def test_the_end_of_a_stopped_request_has_its_figures() -> None:
    with process_engine(FakeLoad(step_s=0.01)) as engine:
        stream = submit(engine, max_tokens=200)
        next(iter(stream))
        engine.stop()
        last = list(stream)[-1]
    assert last.timings is not None
    assert last.usage is not None
    assert last.usage.num_output_tokens > 0


def test_an_engine_that_never_started_can_be_stopped() -> None:
    engine = ProcessEngine(EngineConfig(), FakeLoad())
    with pytest.raises(EngineNotReadyError):
        engine.model_info()
    engine.stop()
    assert (engine.status().state, engine.pid) == (EngineState.STOPPED, None)


def test_stop_in_the_middle_of_loading_is_quick() -> None:
    engine = ProcessEngine(EngineConfig(), FakeLoad(load_s=60))
    engine.start()
    wait_until(lambda: engine.status().message == "Loading the weights.", 30)
    with pytest.raises(EngineNotReadyError, match="still loading"):
        submit(engine)
    started_s = time.monotonic()
    engine.stop()
    assert time.monotonic() - started_s < 2
    assert engine.status().state is EngineState.STOPPED
    assert own_children() == []


def test_a_model_that_cannot_be_loaded_is_a_sentence() -> None:
    with process_engine(FakeLoad(failing="first")) as engine:
        state, message, num_restarts = engine.status()
        assert (state, num_restarts) == (EngineState.FAILED, 0)
        assert message == "There is no model at /nowhere: check --model."
        with pytest.raises(EngineDeadError, match="no model at /nowhere"):
            submit(engine)
        assert own_children() == []


def test_a_process_that_dies_while_loading_at_first_is_not_tried_again() -> None:
    with process_engine(FakeLoad(dies_while_loading=True)) as engine:
        assert engine.status().state is EngineState.FAILED
        assert "while the model was being loaded (signal 9, SIGKILL)" in engine.status().message
        assert engine.status().num_restarts == 0
