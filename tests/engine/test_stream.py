from __future__ import annotations

import asyncio
import threading

import pytest

from engine.request import FinishReason, RequestOutput, RequestProgress, RequestStatus
from engine.stream import OutputStream

END = RequestOutput(request_id="r", finish_reason=FinishReason.STOP)


def make_stream(aborted: list[str] | None = None) -> OutputStream:
    progress = RequestProgress(RequestStatus.RUNNING, None, 4, 9)
    return OutputStream(
        "r", abort=(aborted if aborted is not None else []).append, read_progress=lambda: progress
    )


def delta(text: str) -> RequestOutput:
    return RequestOutput(request_id="r", text=text, token_ids=(ord(text[0]),))


def test_a_sync_reader_gets_everything_in_order() -> None:
    stream = make_stream()
    stream.put(delta("a"))
    outputs = iter(stream)
    assert next(outputs) == delta("a")
    stream.put(delta("b"))
    stream.put(END)
    rest = list(outputs)
    assert [output.text for output in rest] == ["b"]
    assert rest[0].finish_reason is FinishReason.STOP


def test_a_sync_reader_waits_for_another_thread() -> None:
    stream = make_stream()
    texts: list[str] = []
    reader = threading.Thread(target=lambda: texts.extend(output.text for output in stream))
    reader.start()
    for text in "abc":
        stream.put(delta(text))
    stream.put(END)
    reader.join(timeout=10)
    assert "".join(texts) == "abc"


def test_an_async_reader_is_woken_from_another_thread() -> None:
    stream = make_stream()

    async def read() -> str:
        threading.Timer(0.01, lambda: [stream.put(delta(text)) for text in "ab"]).start()
        threading.Timer(0.03, stream.put, [END]).start()
        return "".join([output.text async for output in stream])

    assert asyncio.run(read()) == "ab"


def test_a_cancelled_reader_does_not_disturb_who_puts() -> None:
    stream = make_stream()

    async def read_for_a_moment() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(aiter(stream)), timeout=0.01)

    asyncio.run(read_for_a_moment())
    stream.put(delta("a"))  # that event loop is closed
    stream.put(END)
    assert [output.text for output in stream] == ["a"]


def test_br_34_a_reader_that_stops_reading_costs_bounded_memory() -> None:
    stream = make_stream()
    for index in range(10_000):
        stream.put(delta("xy"[index % 2]))
    assert len(stream._pending) <= 64
    stream.put(END)
    (output,) = list(stream)
    assert output.text == "xy" * 5_000
    assert len(output.token_ids) == 10_000
    assert output.finish_reason is FinishReason.STOP


def test_close_aborts_only_what_still_runs() -> None:
    aborted: list[str] = []
    stream = make_stream(aborted)
    stream.close()
    stream.put(END)
    stream.close()
    assert aborted == ["r"]


def test_nothing_comes_after_the_end() -> None:
    stream = make_stream()
    stream.put(END)
    stream.put(delta("late"))
    assert list(stream) == [END]


def test_progress_ends_with_the_stream() -> None:
    stream = make_stream()
    assert stream.progress.status is RequestStatus.RUNNING
    stream.put(END)
    assert stream.progress.status is RequestStatus.FINISHED


def test_what_has_no_text_yet_waits_for_it() -> None:
    stream = make_stream()
    read: list[RequestOutput] = []
    reader = threading.Thread(target=lambda: read.append(next(iter(stream))))
    reader.start()
    stream.put(RequestOutput(request_id="r", token_ids=(1,)))
    reader.join(timeout=0.05)
    assert reader.is_alive()
    stream.put(delta("a"))
    reader.join(timeout=10)
    assert (read[0].text, read[0].token_ids) == ("a", (1, ord("a")))
    stream.put(RequestOutput(request_id="r", token_ids=(2,)))  # comes at once from here on
    assert next(iter(stream)).token_ids == (2,)


def test_an_answer_nobody_has_read_of_can_begin_anew() -> None:
    stream = make_stream()
    stream.put(delta("a"))
    assert stream.begin_anew()
    stream.put(delta("b"))
    stream.put(END)
    assert not stream.begin_anew()  # it is over
    assert "".join(output.text for output in stream) == "b"


def test_an_answer_of_which_something_was_read_cannot() -> None:
    stream = make_stream()
    stream.put(delta("a"))
    outputs = iter(stream)
    next(outputs)
    stream.put(delta("b"))
    assert not stream.begin_anew()
    stream.put(END)
    assert "".join(output.text for output in outputs) == "b"
