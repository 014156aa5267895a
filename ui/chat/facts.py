"""What is known of an answer when it has ended, from the engine's last word on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from engine import FinishReason, RequestOutput
from ui.chat.conversation import MessageState, ReplyFacts

_Number = TypeVar("_Number", int, float)


def facts_of(last: RequestOutput) -> ReplyFacts:
    """Of a request whose last output this is."""
    facts = ReplyFacts(finish_reason=last.finish_reason or FinishReason.ABORT, error=last.error)
    usage, timings, trace = last.usage, last.timings, last.trace
    if usage is not None:
        facts = replace(
            facts,
            num_prompt_tokens=usage.num_prompt_tokens,
            num_cached_tokens=usage.num_cached_tokens,
            num_output_tokens=usage.num_output_tokens,
        )
    if timings is not None:
        facts = replace(
            facts,
            ttft_s=timings.ttft_s,
            queued_s=timings.queued_s,
            prefill_s=timings.prefill_s,
            decode_s=timings.decode_s,
            tokens_per_s=_rate(facts.num_output_tokens, timings.decode_s),
        )
    if trace is not None:
        facts = replace(
            facts,
            num_ahead=trace.num_ahead,
            num_running=trace.num_running,
            num_preemptions=trace.num_preemptions,
            num_recomputed_tokens=trace.num_recomputed_tokens,
            mean_step_requests=trace.mean_step_requests,
        )
    return facts


def facts_of_both(before: ReplyFacts | None, after: ReplyFacts) -> ReplyFacts:
    """Of an answer that went on: times and output add up, the first part's prompt stays.

    The second part's prompt is the first one's prompt and output: it says nothing new.
    """
    if before is None or before.num_output_tokens is None:
        return after
    if after.num_output_tokens is None:  # it ended before a token came
        return replace(before, finish_reason=after.finish_reason, error=after.error)
    num_output_tokens = before.num_output_tokens + after.num_output_tokens
    decode_s = _sum(before.decode_s, after.decode_s)
    return replace(
        after,
        num_prompt_tokens=before.num_prompt_tokens,
        num_cached_tokens=before.num_cached_tokens,
        num_output_tokens=num_output_tokens,
        ttft_s=before.ttft_s,
        queued_s=_sum(before.queued_s, after.queued_s),
        prefill_s=_sum(before.prefill_s, after.prefill_s),
        decode_s=decode_s,
        # each part's first token is not the decode's
        tokens_per_s=_rate(num_output_tokens - 1, decode_s),
        num_preemptions=_sum(before.num_preemptions, after.num_preemptions),
        num_recomputed_tokens=_sum(before.num_recomputed_tokens, after.num_recomputed_tokens),
    )


def state_of(facts: ReplyFacts) -> MessageState:
    return {
        FinishReason.ABORT: MessageState.STOPPED,
        FinishReason.ERROR: MessageState.FAILED,
    }.get(facts.finish_reason, MessageState.DONE)


def _rate(num_output_tokens: int | None, decode_s: float | None) -> float | None:
    """Tokens a second after the first one."""
    if num_output_tokens is None or num_output_tokens < 2 or not decode_s:
        return None
    return (num_output_tokens - 1) / decode_s


def _sum(first: _Number | None, second: _Number | None) -> _Number | None:
    """What is not known of one part is left out."""
    if first is None or second is None:
        return second if first is None else first
    return first + second
