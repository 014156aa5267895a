"""Numbers and states as words."""

from __future__ import annotations

import pytest

from engine import FinishReason
from ui.chat.answers import AnswerPhase, AnswerSnapshot
from ui.chat.chats import ReplyFacts
from ui.formatting import context_line, count, progress_line, rate, reply_line, seconds


def make_facts(finish_reason: FinishReason = FinishReason.STOP, **changes: object) -> ReplyFacts:
    values = {
        "num_prompt_tokens": 1_318,
        "num_cached_tokens": 1_300,
        "num_output_tokens": 48,
        "ttft_s": 0.416,
        "tokens_per_s": 31.24,
    }
    return ReplyFacts(finish_reason=finish_reason, **(values | changes))  # type: ignore[arg-type]


def test_missing_numbers_are_a_dash() -> None:
    assert (count(None), seconds(None), rate(None)) == ("–", "–", "–")
    assert (count(0), seconds(0), rate(0)) == ("0", "0.00 s", "0.0")


def test_long_durations_lose_their_fraction() -> None:
    assert (seconds(9.994), seconds(12.4)) == ("9.99 s", "12 s")


def test_the_line_under_a_reply() -> None:
    assert reply_line(make_facts()) == (
        "0.42 s to first token · 31.2 tokens/s · 1,318 prompt tokens, 1,300 from cache"
        " · 48 reply tokens"
    )


@pytest.mark.parametrize(
    ("facts", "start"),
    [
        (make_facts(FinishReason.ABORT), "Stopped · 0.42 s"),
        (ReplyFacts(finish_reason=FinishReason.ABORT), "Stopped before the first word"),
        (make_facts(FinishReason.LENGTH), "Ended at the length limit · 0.42 s"),
        (make_facts(FinishReason.ERROR, error="No memory."), "Failed: No memory. · 0.42 s"),
        (ReplyFacts(finish_reason=FinishReason.ERROR), "Failed: the engine gave no reason."),
        (make_facts(tokens_per_s=None), "0.42 s to first token · – tokens/s · "),
    ],
)
def test_how_a_reply_ended_comes_first(facts: ReplyFacts, start: str) -> None:
    assert reply_line(facts).startswith(start)


@pytest.mark.parametrize(
    ("snapshot", "line"),
    [
        (AnswerSnapshot(AnswerPhase.PREPARING), "Preparing…"),
        (AnswerSnapshot(AnswerPhase.QUEUED), "Waiting for the engine…"),
        (AnswerSnapshot(AnswerPhase.QUEUED, queue_position=1), "Next in the queue"),
        (AnswerSnapshot(AnswerPhase.QUEUED, queue_position=3), "2 ahead of you"),
        (
            AnswerSnapshot(AnswerPhase.READING, num_computed_tokens=512, num_prompt_tokens=1_024),
            "Reading the prompt · 512 of 1,024 tokens",
        ),
        (
            AnswerSnapshot(AnswerPhase.WRITING, "Hi", num_output_tokens=2, tokens_per_s=12.34),
            "Writing · 2 tokens · 12.3 tokens/s",
        ),
        (AnswerSnapshot(AnswerPhase.STOPPING, "Hi"), "Stopping…"),
    ],
)
def test_where_an_answer_stands(snapshot: AnswerSnapshot, line: str) -> None:
    assert progress_line(snapshot) == line


def test_context_used_of_context_available() -> None:
    assert context_line(312, 8_192) == "312 of 8,192 tokens of context"
