"""Admission, streams and readings without a loop: a test says what the loop would."""

from __future__ import annotations

import gc

import pytest

from engine.config import EngineConfig
from engine.engine import EngineState, EngineStatus
from engine.errors import EngineDeadError, EngineNotReadyError
from engine.front_desk import FrontDesk
from engine.loop_news import LoopNews, Reading
from engine.request import FinishReason, RequestOutput, RequestProgress, RequestStatus
from tests.engine_factories import make_generation_request
from tests.factories import make_engine_stats, make_model_info

READY = EngineStatus(EngineState.READY, "The model is ready.")


def make_desk(aborted: list[str] | None = None, **config: int) -> FrontDesk:
    aborted = [] if aborted is None else aborted
    desk = FrontDesk(EngineConfig(**config), abort=aborted.append, clock=lambda: 10.0)
    desk.ready(make_model_info(), READY)
    return desk


def end(request_id: str, text: str = "") -> RequestOutput:
    return RequestOutput(request_id=request_id, text=text, finish_reason=FinishReason.STOP)


def test_before_the_first_load_nothing_is_taken() -> None:
    desk = FrontDesk(EngineConfig(), abort=lambda _: None, clock=lambda: 0.0)
    with pytest.raises(EngineNotReadyError):
        desk.open(make_generation_request())
    assert desk.stats() is None


def test_outputs_reach_their_own_stream() -> None:
    desk = make_desk()
    a, b = (desk.open(make_generation_request(name)).stream for name in "ab")
    desk.deliver(LoopNews(10.0, (end("b", "to b"), end("nobody"), end("a", "to a"))))
    assert [output.text for output in a] == ["to a"]
    assert [output.text for output in b] == ["to b"]
    assert not desk.has_work


def test_an_end_comes_with_the_figures_that_belong_to_it() -> None:
    desk = make_desk()
    stream = desk.open(make_generation_request("a")).stream
    with pytest.raises(Exception, match="empty"):
        desk.open(make_generation_request("b", prompt=()))
    reading = Reading(make_engine_stats(num_output_tokens_total=7), {})
    desk.deliver(LoopNews(10.0, (end("a"), end("nobody")), reading=reading))
    list(stream)
    stats = desk.stats()
    assert stats is not None
    assert (stats.num_requests_total, stats.num_requests_refused_total) == (1, 1)
    assert stats.num_requests_finished_total["stop"] == 1
    assert stats.num_output_tokens_total == 7


def test_a_place_in_the_queue_has_an_expected_wait() -> None:
    desk = make_desk(max_num_seqs=1)
    streams = [desk.open(make_generation_request(name)).stream for name in "abc"]
    desk.deliver(LoopNews(10.0, started=("a",)))
    desk.deliver(LoopNews(12.0, (end("a"),), ("b",)))
    waiting = RequestProgress(RequestStatus.WAITING, 3, 0, 3)
    desk.deliver(LoopNews(12.0, reading=Reading(make_engine_stats(), {"c": waiting})))
    assert streams[2].progress == waiting._replace(expected_wait_s=6.0)  # one in 2 s
    assert streams[1].progress.queue_position is None


def test_a_stream_nobody_holds_is_aborted() -> None:
    aborted: list[str] = []
    desk = make_desk(aborted)
    opened = desk.open(make_generation_request("a"))
    assert aborted == []
    del opened
    gc.collect()
    assert aborted == ["a"]
    assert not desk.begin_anew("a")


def test_a_withdrawn_request_leaves_its_id_free() -> None:
    desk = make_desk()
    desk.open(make_generation_request("a"))
    desk.withdraw("a")
    assert not desk.has_work
    desk.open(make_generation_request("a"))


def test_a_closed_desk_ends_everybody_and_takes_nobody() -> None:
    desk = make_desk()
    stream = desk.open(make_generation_request("a")).stream
    desk.close(EngineStatus(EngineState.FAILED, "It is broken."), FinishReason.ERROR)
    (output,) = list(stream)
    assert (output.finish_reason, output.error) == (FinishReason.ERROR, "It is broken.")
    with pytest.raises(EngineDeadError, match=r"It is broken\."):
        desk.open(make_generation_request("b"))
