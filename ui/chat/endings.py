"""How an answer ended: what becomes of it, and what is known of it then."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from engine import FinishReason, Transcript
from ui.chat.answer import Answer
from ui.chat.conversation import MessageState, ReplyFacts
from ui.chat.facts import facts_of, facts_of_both, state_of

FAULT = "The server failed on this answer. Its log has the details."
_SERVER_STOPPED = "The server was stopped while this was written."


class Ending(NamedTuple):
    state: MessageState
    facts: ReplyFacts
    transcript: Transcript | None = None


def ending_of(answer: Answer, transcript: Transcript | None) -> Ending:
    """Of one whose stream was read to its end."""
    last = answer.last_output
    if last is None:
        return failed(answer, "The engine ended this answer without a word.")
    facts = facts_of_both(answer.facts_before, facts_of(last))
    is_aborted = last.finish_reason is FinishReason.ABORT
    if is_aborted and not answer.is_stopping:
        # nobody asked for this end: the engine was stopped, or its time was over
        facts = replace(facts, error=facts.error or _SERVER_STOPPED)
        return Ending(MessageState.INTERRUPTED, facts, transcript)
    if is_aborted and answer.stop_reason is not None:
        facts = replace(facts, error=answer.stop_reason)
    return Ending(state_of(facts), facts, transcript)


def failed(answer: Answer, reason: str) -> Ending:
    """`reason`: a sentence for its person."""
    return Ending(MessageState.FAILED, _cut_short(answer, FinishReason.ERROR, reason))


def interrupted(answer: Answer) -> Ending:
    """The server goes down."""
    facts = _cut_short(answer, FinishReason.ABORT, _SERVER_STOPPED)
    return Ending(MessageState.INTERRUPTED, facts)


def _cut_short(answer: Answer, finish_reason: FinishReason, reason: str) -> ReplyFacts:
    """Of an answer whose stream did not come to its end: what is known by then."""
    last = answer.last_output
    facts = ReplyFacts(finish_reason=finish_reason) if last is None else facts_of(last)
    facts = replace(facts, finish_reason=finish_reason, error=reason)
    return facts_of_both(answer.facts_before, facts)
