"""The whole engine in its thread, on a FakeRunner with blocks of 8 tokens."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from engine.errors import (
    ContextLengthError,
    QueueFullError,
)
from engine.in_process import InProcessEngine
from engine.request import FinishReason, RequestStatus
from tests.engine_factories import Gate, read_all, start_engine, submit, wait_until
from tests.fake_runner import FakeRunner

PROMPT = tuple(range(40, 60))


def is_idle(engine: InProcessEngine) -> bool:
    stats = engine.stats()
    return stats is not None and stats.num_running + stats.num_waiting == 0


def test_replies_are_what_the_model_says() -> None:
    runner = FakeRunner(8)
    engine = start_engine(runner)
    streams = {index: submit(engine, f"r{index}", max_tokens=9, seed=index) for index in range(20)}
    for index, stream in streams.items():
        output = read_all(stream)
        assert list(output.token_ids) == runner.expected_tokens(PROMPT, 9, seed=index)
        assert output.finish_reason is FinishReason.LENGTH
    engine.stop()


def test_readers_may_be_async() -> None:
    runner = FakeRunner(8)
    engine = start_engine(runner)

    async def read_one(index: int) -> list[int]:
        stream = submit(engine, f"r{index}", max_tokens=9, seed=index)
        return [token async for output in stream for token in output.token_ids]

    async def read_everything() -> list[list[int]]:
        return await asyncio.gather(*(read_one(index) for index in range(8)))

    replies = asyncio.run(read_everything())
    assert replies == [runner.expected_tokens(PROMPT, 9, seed=index) for index in range(8)]
    engine.stop()


def test_what_is_refused_is_refused_at_once() -> None:
    engine = start_engine()
    with pytest.raises(ContextLengthError):
        submit(engine, prompt=[1] * 256)
    wait_until(lambda: is_idle(engine))
    assert engine.model_info().max_model_len == 256
    engine.stop()


def test_the_queue_bound_holds_while_a_step_runs() -> None:
    runner = FakeRunner(8)
    runner.fault = gate = Gate()
    engine = start_engine(runner, max_num_seqs=1, max_queued_requests=1)
    streams = [submit(engine, "r0", max_tokens=2)]
    assert gate.reached.wait(10)  # it counts as waiting until its first step has run
    streams.append(submit(engine, "r1", max_tokens=2))
    with pytest.raises(QueueFullError):
        submit(engine, "r2", max_tokens=2)
    gate.opened.set()
    assert [read_all(stream).finish_reason for stream in streams] == [FinishReason.LENGTH] * 2
    engine.stop()


def test_progress_names_the_place_in_the_queue() -> None:
    runner = FakeRunner(8)
    engine = start_engine(runner, max_num_seqs=1)
    runner.fault = lambda batch: time.sleep(0.005)
    first = submit(engine, "r0", max_tokens=100, user="ann")
    second = submit(engine, "r1", max_tokens=1, user="ann")
    wait_until(lambda: second.progress.queue_position == 1)
    wait_until(lambda: first.progress.status is RequestStatus.RUNNING)
    assert first.progress.num_prompt_tokens == 20
    first.close()
    assert read_all(second).finish_reason is FinishReason.LENGTH
    assert second.progress.status is RequestStatus.FINISHED
    engine.stop()


def test_br_35_closing_a_stream_ends_the_work_before_the_first_token() -> None:
    runner = FakeRunner(8)
    engine = start_engine(runner, max_num_batched_tokens=32)
    runner.fault = lambda batch: time.sleep(0.01)
    stream = submit(engine, prompt=[1] * 200, max_tokens=50)
    wait_until(lambda: bool(runner.batches))
    for _ in range(5):
        stream.close()
    output = read_all(stream)
    assert (output.finish_reason, output.token_ids) == (FinishReason.ABORT, ())
    wait_until(lambda: is_idle(engine))
    assert runner.num_tokens_computed < 200
    engine.stop()


def test_br_34_readers_that_leave_or_stop_reading_do_not_disturb_others() -> None:
    runner = FakeRunner(8)
    engine = start_engine(runner)
    for round_number in range(10):
        streams = [
            submit(engine, f"{round_number}-{index}", max_tokens=20, seed=index)
            for index in range(8)
        ]
        silent = submit(engine, f"{round_number}-silent", max_tokens=20)
        next(iter(streams[0]))
        streams[0].close()
        for index, stream in enumerate(streams[1:], start=1):
            expected = runner.expected_tokens(PROMPT, 20, seed=index)
            assert list(read_all(stream).token_ids) == expected
        wait_until(lambda: is_idle(engine))
        assert len(read_all(silent).token_ids) == 20  # it was never read, and nothing was lost
    stats = engine.stats()
    assert stats is not None
    assert stats.num_blocks_in_use == 0
    engine.stop()


def test_a_stream_nobody_holds_is_aborted() -> None:
    runner = FakeRunner(8)
    engine = start_engine(runner)
    runner.fault = lambda batch: time.sleep(0.005)
    stream = submit(engine, max_tokens=200)
    next(iter(stream))
    del stream
    gc.collect()
    wait_until(lambda: is_idle(engine))
    stats = engine.stats()
    assert stats is not None
    assert stats.num_requests_finished_total["abort"] == 1
    engine.stop()


def test_an_id_may_be_used_again_after_its_end() -> None:
    engine = start_engine()
    for _ in range(3):
        assert read_all(submit(engine, "same", max_tokens=2)).finish_reason is FinishReason.LENGTH
    engine.stop()
