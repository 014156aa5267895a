"""Numbers and states as the words people read. A missing number is a dash, never 0."""

from __future__ import annotations

from engine import FinishReason
from ui.chat.answers import AnswerPhase, AnswerSnapshot
from ui.chat.chats import ReplyFacts

MISSING = "–"


def count(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"


def seconds(duration_s: float | None) -> str:
    if duration_s is None:
        return MISSING
    return f"{duration_s:.2f} s" if duration_s < 10 else f"{duration_s:.0f} s"


def rate(per_s: float | None) -> str:
    return MISSING if per_s is None else f"{per_s:.1f}"


def reply_line(facts: ReplyFacts) -> str:
    """The small line under a reply: how it ended, where that is news, and what it took."""
    parts = [_ending(facts)] if _ending(facts) else []
    if facts.num_output_tokens:
        parts.append(f"{seconds(facts.ttft_s)} to first token")
        parts.append(f"{rate(facts.tokens_per_s)} tokens/s")
    if facts.num_prompt_tokens is not None:
        parts.append(
            f"{count(facts.num_prompt_tokens)} prompt tokens, "
            f"{count(facts.num_cached_tokens)} from cache"
        )
        parts.append(f"{count(facts.num_output_tokens)} reply tokens")
    return " · ".join(parts)


def _ending(facts: ReplyFacts) -> str:
    if facts.finish_reason is FinishReason.ABORT:
        return "Stopped" if facts.num_output_tokens else "Stopped before the first word"
    if facts.finish_reason is FinishReason.LENGTH:
        return "Ended at the length limit"
    if facts.finish_reason is FinishReason.ERROR:
        return f"Failed: {facts.error or 'the engine gave no reason.'}"
    return ""


def progress_line(snapshot: AnswerSnapshot) -> str:
    """Where an answer stands, while it is made."""
    if snapshot.phase is AnswerPhase.PREPARING:
        return "Preparing…"
    if snapshot.phase is AnswerPhase.QUEUED:
        return _queue_line(snapshot.queue_position)
    if snapshot.phase is AnswerPhase.READING:
        computed, total = count(snapshot.num_computed_tokens), count(snapshot.num_prompt_tokens)
        return f"Reading the prompt · {computed} of {total} tokens"
    if snapshot.phase is AnswerPhase.STOPPING:
        return "Stopping…"
    return (
        f"Writing · {count(snapshot.num_output_tokens)} tokens · "
        f"{rate(snapshot.tokens_per_s)} tokens/s"
    )


def _queue_line(queue_position: int | None) -> str:
    if queue_position is None:
        return "Waiting for the engine…"
    ahead = queue_position - 1
    return "Next in the queue" if ahead <= 0 else f"{count(ahead)} ahead of you"


def context_line(num_tokens: int, max_tokens: int) -> str:
    return f"{count(num_tokens)} of {count(max_tokens)} tokens of context"
