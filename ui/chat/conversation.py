"""Conversations as plain data: a tree of messages, of which a person sees one path.

    question 1 ─┬─ answer 1a ── question 2 ── answer 2      a branch that is not shown
                └─ answer 1b ── question 2'── answer 2'     the path: root to the active leaf

Editing a question or answering it again adds a sibling; nothing below the old one is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine import FinishReason
from ui.chat.settings import ChatSettings

ROOT: None = None  # the parent of a first question


class ChatError(Exception):
    """Something a person asked for cannot be done. The message is a sentence for them.

    `code` names the kind, for the page's translations and for tests.
    """

    code = "refused"


class NotFoundError(ChatError):
    """There is no such thing, or it is not this person's."""

    code = "not_found"


class LimitError(ChatError):
    """A bound is reached."""

    code = "limit"


class ConflictError(ChatError):
    """Something else is going on there, e.g. an answer is being written."""

    code = "conflict"


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


class MessageState(StrEnum):
    DONE = "done"  # every question, and answers that ended by themselves or at a length limit
    WRITING = "writing"
    STOPPED = "stopped"  # by a person, or because nobody watched any more
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # the server ended while it was written


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFacts:
    """What is known of an answer when it has ended. None: not measured."""

    finish_reason: FinishReason
    error: str | None = None
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    num_output_tokens: int | None = None
    tokens_per_s: float | None = None
    ttft_s: float | None = None
    queued_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    num_ahead: int | None = None  # requests before it in the queue when it came
    num_running: int | None = None  # requests that ran then
    num_preemptions: int | None = None
    num_recomputed_tokens: int | None = None  # when the chat outgrew a table of positions
    mean_step_requests: float | None = None  # how many shared a decode step, itself included


class ContextCut(NamedTuple):
    """Chosen by the person at a question: what the model gets of the messages before it."""

    first_message_id: str  # the first one that is still sent word for word
    num_left_out: int
    summary: str  # stands for those left out; empty: they are just left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    message_id: str
    parent_id: str | None
    role: Role
    text: str
    state: MessageState = MessageState.DONE
    facts: ReplyFacts | None = None  # of answers that have ended
    cut: ContextCut | None = None  # of questions
    created_s: float = 0.0  # wall clock
    revision: int = 0  # grows with each change
    variant_ids: tuple[str, ...] = ()  # itself and its siblings, oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a person sees of one: the end of the active path, or all of it."""

    conversation_id: str
    title: str
    settings: ChatSettings = field(default_factory=ChatSettings)
    is_pinned: bool = False
    is_archived: bool = False
    updated_s: float = 0.0
    messages: tuple[Message, ...] = ()
    num_earlier: int = 0  # messages of the path before messages[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEntry:
    """One line of the list."""

    conversation_id: str
    title: str
    is_pinned: bool
    is_archived: bool
    updated_s: float


class SearchHit(NamedTuple):
    """A conversation whose title (message_id None) or a message of which contains the words.

    The excerpt is plain text; what matched lies between `hit_start` and `hit_end`, counted in
    UTF-16 units as browsers count.
    """

    conversation_id: str
    title: str
    message_id: str | None
    excerpt: str
    hit_start: int
    hit_end: int


class Asked(NamedTuple):
    """The ids of a question and of the answer that will be written to it."""

    conversation_id: str
    question_id: str
    answer_id: str
    is_new: bool  # False: this question was asked before (the browser sent it twice)
