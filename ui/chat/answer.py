"""One answer while it is made: what it says so far, where it stands, and stopping it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from engine import ChatStream, RequestOutput, RequestStatus, Usage
from ui.chat.conversation import Message, MessageState, ReplyFacts

_MIN_RATE_S = 0.5  # a rate over less says nothing


class AnswerPhase(StrEnum):
    PREPARING = "preparing"
    SUMMARISING = "summarising"
    QUEUED = "queued"
    READING = "reading"
    WRITING = "writing"
    STOPPING = "stopping"


class AnswerProgress(NamedTuple):
    """Where an answer stands at one moment. Numbers are None where the phase has none."""

    phase: AnswerPhase
    queue_position: int | None = None  # 1: next
    expected_wait_s: float | None = None
    num_computed_tokens: int | None = None
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None
    tokens_per_s: float | None = None


class UnsavedEnd(NamedTuple):
    state: MessageState
    facts: ReplyFacts


class Answer:
    """Used on the event loop only."""

    def __init__(
        self,
        *,
        person: str,
        conversation_id: str | None,
        message_id: str,
        abort: Callable[[str], None],
        now_s: float,
    ) -> None:
        self.person = person
        self.conversation_id = conversation_id  # None: of a new one, which is not stored yet
        self.message_id = message_id
        self.facts_before: ReplyFacts | None = None  # where it goes on with an earlier part
        self.last_watched_s = now_s
        self.unsaved: UnsavedEnd | None = None  # while the database cannot take it
        self.is_ended = False  # only its end is still to be stored
        self.is_stopping = False
        self.stop_reason: str | None = None
        self.is_summarising = False
        self.last_output: RequestOutput | None = None
        self._abort = abort
        self._stream: ChatStream | None = None
        self._parts: list[str] = []
        self.num_flushed_parts = 0
        self._usage: Usage | None = None
        self._first_token_s: float | None = None

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def num_parts(self) -> int:
        """Grows with each piece of text."""
        return len(self._parts)

    def text_after(self, num_parts: int) -> str:
        """What was said since there were `num_parts` parts."""
        return "".join(self._parts[num_parts:])

    def go_on_from(self, message: Message) -> None:
        """What follows is appended to this message, before anything else is said."""
        self._parts = [message.text]
        self.num_flushed_parts = 1
        self.facts_before = message.facts

    def attach(self, stream: ChatStream) -> None:
        """Read from here on; a Stop that came earlier ends it at once."""
        self._stream = stream
        if self.is_stopping:
            self._abort(stream.request_id)

    def detach(self) -> None:
        self._stream = None

    def stop(self, reason: str | None = None) -> None:
        """End it early. Its stream is read on to the last delta, so that nothing is lost."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self.stop_reason = reason
        if self._stream is not None:
            self._abort(self._stream.request_id)

    def add(self, output: RequestOutput, now_s: float) -> None:
        if self._first_token_s is None and output.token_ids:
            self._first_token_s = now_s
        if output.text:
            self._parts.append(output.text)
        self._usage = output.usage or self._usage
        self.last_output = replace(output, usage=self._usage)  # a failure may come without

    def as_shown(self, stored: Message) -> Message:
        """The message with the end that the database could not take yet, if there is one."""
        if self.unsaved is None or stored.message_id != self.message_id:
            return stored
        return replace(
            stored,
            text=self.text,
            state=self.unsaved.state,
            facts=self.unsaved.facts,
            revision=stored.revision + 1,
        )

    def progress(self, now_s: float) -> AnswerProgress:
        if self.is_stopping:
            return AnswerProgress(AnswerPhase.STOPPING)
        if self.is_summarising:
            return AnswerProgress(AnswerPhase.SUMMARISING)
        if self._stream is None:
            return AnswerProgress(AnswerPhase.PREPARING)
        if self._usage is not None and self._first_token_s is not None:
            return self._writing(self._usage.num_output_tokens, now_s - self._first_token_s)
        progress = self._stream.progress
        if progress.status is RequestStatus.WAITING:
            return AnswerProgress(
                AnswerPhase.QUEUED,
                queue_position=progress.queue_position,
                expected_wait_s=progress.expected_wait_s,
            )
        return AnswerProgress(
            AnswerPhase.READING,
            num_computed_tokens=progress.num_computed_tokens,
            num_prompt_tokens=progress.num_prompt_tokens,
        )

    def _writing(self, num_output_tokens: int, elapsed_s: float) -> AnswerProgress:
        rate = (num_output_tokens - 1) / elapsed_s if elapsed_s > _MIN_RATE_S else None
        return AnswerProgress(
            AnswerPhase.WRITING, num_output_tokens=num_output_tokens, tokens_per_s=rate
        )
