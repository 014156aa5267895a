"""EngineCore on a model whose tokens show any wrong reuse; blocks hold 4 tokens."""

from __future__ import annotations

from typing import Any

import pytest

from engine.batch import ScheduledBatch
from engine.metrics import MetricsRecorder
from engine.request import FinishReason, RequestTrace
from tests.engine_factories import CoreDriver, make_metrics

PROMPT = tuple(range(40, 62))


def test_a_reply_ends_at_max_tokens() -> None:
    driver = CoreDriver()
    driver.add("a", PROMPT, max_tokens=5)
    driver.run()
    assert driver.tokens("a") == driver.runner.expected_tokens(PROMPT, 5)
    assert driver.reason("a") is FinishReason.LENGTH
    assert driver.last("a").usage == (22, 0, 5)


def test_an_end_token_stops_and_has_no_text() -> None:
    driver = CoreDriver(eos_token_ids=frozenset({0, 9}))
    driver.runner.forced["a"] = b"Hi\x09"
    driver.add("a", PROMPT, max_tokens=9)
    driver.run()
    assert (driver.text("a"), driver.tokens("a")) == ("Hi", [72, 105, 9])
    last = driver.last("a")
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, None)
    assert last.num_accepted_tokens == 2


@pytest.mark.parametrize("end", [0, 9, 200])
def test_br_16_any_of_several_end_tokens_ends_a_reply_and_is_never_shown(end: int) -> None:
    driver = CoreDriver(eos_token_ids=frozenset({0, 9, 200}))
    driver.runner.forced["a"] = [72, 105, end, 0, 9]
    driver.add("a", PROMPT, max_tokens=300)
    driver.run()
    assert (driver.text("a"), driver.tokens("a")) == ("Hi", [72, 105, end])
    assert driver.reason("a") is FinishReason.STOP
    # the next turn has one end marker: the kept reply has none, its template adds it
    assert driver.last("a").num_accepted_tokens == 2


def test_ignore_eos_goes_on() -> None:
    driver = CoreDriver(eos_token_ids=frozenset({9}))
    driver.runner.forced["a"] = b"H\x09i!"
    driver.add("a", PROMPT, max_tokens=4, ignore_eos=True)
    driver.run()
    assert driver.text("a") == "H\ti!"
    assert driver.reason("a") is FinishReason.LENGTH


def test_a_stop_token_is_named() -> None:
    driver = CoreDriver()
    driver.runner.forced["a"] = b"Hi!"
    driver.add("a", PROMPT, max_tokens=9, stop_token_ids=(ord("!"),))
    driver.run()
    assert driver.text("a") == "Hi"
    assert driver.last("a").stop_reason == ord("!")


def test_a_stop_string_cuts_the_text_and_what_the_cache_keeps() -> None:
    driver = CoreDriver()
    driver.runner.forced["a"] = b"one\n\nQ: two"
    request = driver.add("a", PROMPT, max_tokens=20, stop=("\n\nQ:",))
    driver.run()
    assert driver.text("a") == "one"
    last = driver.last("a")
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, "\n\nQ:")
    assert last.num_accepted_tokens == 3
    match = driver.kv.match_prefix("next", [*request.token_ids, 1, 2, 3])
    assert match.num_tokens == len(PROMPT) + 3


@pytest.mark.parametrize(
    ("forced", "values", "text", "reason"),
    [
        (b"RED BLUE\x00", {}, "RED BLUE", FinishReason.STOP),
        (b"RED BLUE", {"max_tokens": 8}, "RED BLUE", FinishReason.LENGTH),
        (b"?\n", {"stop": ("\n",)}, "?", FinishReason.STOP),
    ],
)
def test_br_23_held_back_text_is_released_at_the_end(
    forced: bytes, values: dict[str, Any], text: str, reason: FinishReason
) -> None:
    driver = CoreDriver(eos_token_ids=frozenset({0}))
    driver.runner.forced["a"] = forced
    driver.add("a", PROMPT, **({"max_tokens": 20, "stop": ("BLUE\nQQ",)} | values))
    driver.run()
    assert (driver.text("a"), driver.reason("a")) == (text, reason)


def test_br_23_held_back_text_is_released_by_a_cancel() -> None:
    driver = CoreDriver()
    driver.runner.forced["a"] = b"RED BLUE"
    driver.add("a", PROMPT, max_tokens=20, stop=("BLUE\nQQ",))
    for _ in range(8):
        driver.step()
    assert driver.text("a") == "RED "
    driver.abort("a")
    assert (driver.text("a"), driver.reason("a")) == ("RED BLUE", FinishReason.ABORT)
    assert driver.last("a").num_accepted_tokens == 8


def test_br_39_without_an_end_token_the_limit_ends_the_reply() -> None:
    driver = CoreDriver(num_blocks=64)
    driver.add("a", range(200), max_tokens=56)  # as admission fills up a context of 256
    driver.run()
    assert driver.reason("a") is FinishReason.LENGTH
    assert driver.last("a").usage == (200, 0, 56)
    assert driver.tokens("a") == driver.runner.expected_tokens(range(200), 56)


def test_br_24_a_seeded_reply_is_the_same_whoever_is_beside_it() -> None:
    alone = CoreDriver()
    alone.add("a", PROMPT, seed=42, max_tokens=16)
    alone.run()
    for seed in (None, 7):
        driver = CoreDriver()
        driver.add("b", PROMPT, seed=seed, max_tokens=20)
        driver.step()
        driver.add("a", PROMPT, seed=42, max_tokens=16)
        driver.run()
        assert driver.tokens("a") == alone.tokens("a")
        assert driver.tokens("b") != alone.tokens("a")


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 6])
def test_br_35_a_cancel_ends_the_work_at_once(num_steps: int) -> None:
    driver = CoreDriver(prompt_tokens=8, max_num_seqs=1)
    driver.add("a", PROMPT, max_tokens=50)
    driver.add("waiting", PROMPT, max_tokens=50)
    for _ in range(num_steps):
        driver.step()
    for _ in range(5):
        driver.abort("waiting")
        driver.abort("a")
    num_batches = len(driver.runner.batches)
    driver.step()
    assert len(driver.runner.batches) == num_batches
    assert not driver.core.has_work
    assert driver.reason("waiting") is driver.reason("a") is FinishReason.ABORT
    assert len(driver.tokens("a")) == max(0, num_steps - 2)
    assert driver.kv.usage().num_in_use == 0
    driver.core.check_integrity()


@pytest.mark.parametrize("abort_after", range(6))
def test_br_03_cancels_and_retries_do_not_touch_others(abort_after: int) -> None:
    driver = CoreDriver(num_blocks=40, prompt_tokens=16)
    shared = tuple(range(100, 124))
    for name in "abcd":
        driver.add(name, [*shared, ord(name)], max_tokens=8)
    for step in range(12):
        if step == abort_after:
            driver.abort("a")
        if step == abort_after + 1:
            driver.abort("b")
            driver.add("a again", [*shared, ord("a")], max_tokens=8)
            driver.add("b again", [*shared, ord("b")], max_tokens=8)
            driver.add("other", range(30), max_tokens=8)
        driver.step()
    driver.run()
    for name, last in (("c", "c"), ("d", "d"), ("a again", "a"), ("b again", "b")):
        expected = driver.runner.expected_tokens([*shared, ord(last)], 8)
        assert driver.tokens(name) == expected
    assert driver.tokens("other") == driver.runner.expected_tokens(range(30), 8)
    assert driver.kv.usage().num_in_use == 0


@pytest.mark.parametrize("num_steps", [1, 2, 4, 7])
def test_br_04_an_abort_during_prefill_does_not_poison_its_prefix(num_steps: int) -> None:
    driver = CoreDriver(num_blocks=32, prompt_tokens=8)
    document = list(range(60))
    driver.add("a", document, max_tokens=4)
    for _ in range(num_steps):
        driver.step()
    driver.abort("a")
    for index in range(20):  # the blocks get used for something else
        driver.add(f"r{index}", [200 - index] * 9, max_tokens=4)
    driver.add("b", document, max_tokens=4)
    driver.run()
    assert driver.tokens("b") == driver.runner.expected_tokens(document, 4)


def test_a_reply_that_cannot_be_decoded_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = CoreDriver()
    driver.add("a", PROMPT, max_tokens=4)
    driver.add("b", PROMPT, max_tokens=4)
    reply = driver.core._replies["a"]
    monkeypatch.delattr(reply._detokenizer, "_decoder")
    driver.run()
    assert driver.reason("a") is FinishReason.ERROR
    assert driver.tokens("b") == driver.runner.expected_tokens(PROMPT, 4)


def test_the_time_limit_ends_a_request_and_keeps_what_was_written() -> None:
    driver = CoreDriver(max_num_seqs=1)
    driver.runner.forced["a"] = b"Hello"
    driver.add("a", PROMPT, max_tokens=50, deadline_s=2.0)
    driver.add("waiting", PROMPT, max_tokens=50, deadline_s=1.0)
    for _ in range(4):
        driver.step(seconds=0.5)
    assert driver.text("a") == "Hell"
    driver.step()
    assert driver.reason("a") is FinishReason.ERROR
    assert driver.last("a").error == (
        "The time limit of 2 s is over; what was written until then is kept."
    )
    assert driver.last("waiting").error is not None
    assert not driver.core.has_work
    driver.core.check_integrity()


def test_preempted_requests_give_the_same_tokens() -> None:
    driver = CoreDriver(num_blocks=9)
    for index in range(4):
        driver.add(f"r{index}", [index] * 6, max_tokens=12, arrival_s=index)
    driver.run()
    assert driver.scheduler.num_preemptions > 0
    for index in range(4):
        assert driver.tokens(f"r{index}") == driver.runner.expected_tokens([index] * 6, 12)


class BrokenMetrics(MetricsRecorder):
    def step_ended(self, step: object) -> None:
        raise ValueError("counters can only rise")

    request_started = request_ended = request_added = step_ended  # type: ignore[assignment]


def test_br_52_broken_figures_do_not_stop_the_service(caplog: pytest.LogCaptureFixture) -> None:
    driver = CoreDriver(metrics=BrokenMetrics(max_num_seqs=8, block_size=4, max_model_len=512))
    driver.add("a", PROMPT, max_tokens=4)
    driver.run()
    assert driver.tokens("a") == driver.runner.expected_tokens(PROMPT, 4)
    assert "A figure could not be recorded" in caplog.text


def test_timings_come_with_the_last_output() -> None:
    driver = CoreDriver(metrics=make_metrics(), prompt_tokens=8)
    driver.runner.fault = lambda batch: setattr(driver.clock, "now_s", driver.clock.now_s + 1.0)
    driver.clock.now_s = 3.0
    driver.add("a", range(16), max_tokens=3, arrival_s=1.0)
    driver.run()
    timings = driver.last("a").timings
    assert timings == (2.0, 2.0, 4.0, 2.0, 6.0)
    assert driver.outputs["a"][0].timings is None


def test_the_trace_says_what_a_request_met() -> None:
    driver = CoreDriver(prompt_tokens=8, max_num_seqs=2)
    driver.add("a", range(40, 60), max_tokens=6, user="ann")
    driver.step()
    driver.add("b", range(100, 104), max_tokens=3, user="bob")
    driver.add("c", range(120, 124), max_tokens=2, user="cho")
    driver.run()
    traces = {name: driver.last(name).trace for name in "abc"}
    assert traces["b"] is not None
    assert traces["c"] is not None
    assert (traces["b"].num_ahead, traces["b"].num_running) == (0, 1)
    assert (traces["c"].num_ahead, traces["c"].num_running) == (1, 1)
    a = traces["a"]
    assert a is not None
    assert (a.num_prefill_steps, a.num_decode_steps, a.num_preemptions) == (3, 5, 0)
    assert a.mean_step_requests is not None
    assert 1.0 < a.mean_step_requests <= 2.0


def test_a_request_that_never_ran_has_an_empty_trace() -> None:
    driver = CoreDriver()
    driver.add("a")
    driver.abort("a")
    assert driver.last("a").trace == RequestTrace(0, 0, 0, 0, 0, None)


def test_who_starts_is_announced_before_the_step() -> None:
    driver = CoreDriver()
    driver.add("a")
    announced: list[str] = []

    def fault(batch: ScheduledBatch) -> None:
        assert announced == ["a"]

    driver.runner.fault = fault
    for _ in range(2):
        driver.core.step(lambda started: announced.extend(item.request_id for item in started))
    assert announced == ["a"]
