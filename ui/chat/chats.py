"""The chats people have, kept in memory and bounded. Knows nothing of engines or pages.

Every method takes the person; a chat of somebody else is as good as none.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine import FinishReason
from ui.chat.settings import ChatSettings

MAX_TITLE_CHARS = 48


class ChatError(Exception):
    """Something a person asked for cannot be done. The message is a sentence for them."""


class ChatNotFoundError(ChatError):
    """There is no such chat, or it is not this person's."""


class ChatLimitError(ChatError):
    """A bound is reached."""


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFacts:
    """What is known of a reply when it has ended. None: not measured."""

    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    num_output_tokens: int | None = None
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    finish_reason: FinishReason
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str
    facts: ReplyFacts | None = None  # of replies


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One conversation as it is now; a change makes a new one."""

    chat_id: str
    messages: tuple[Message, ...] = ()
    settings: ChatSettings = field(default_factory=ChatSettings)

    @property
    def title(self) -> str:
        text = " ".join(self.messages[0].text.split()) if self.messages else "New chat"
        return text if len(text) <= MAX_TITLE_CHARS else text[: MAX_TITLE_CHARS - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    max_people: int = 1_000
    max_chats_per_person: int = 100
    max_messages_per_chat: int = 400
    max_message_chars: int = 200_000


class ChatStore:
    """Chats by person, the most recently changed one last."""

    def __init__(self, limits: ChatLimits | None = None) -> None:
        self.limits = limits or ChatLimits()
        self._people: OrderedDict[str, OrderedDict[str, Chat]] = OrderedDict()

    def chats_of(self, person: str) -> tuple[Chat, ...]:
        """Newest first."""
        return tuple(reversed(self._people.get(person, OrderedDict()).values()))

    def has(self, person: str, chat_id: str) -> bool:
        return chat_id in self._people.get(person, ())

    def get(self, person: str, chat_id: str) -> Chat:
        chat = self._people.get(person, OrderedDict()).get(chat_id)
        if chat is None:
            raise ChatNotFoundError("This chat is not there any more. Start a new one.")
        return chat

    def new_chat(self, person: str) -> Chat:
        """A chat that is not kept before its first message is added by `save`."""
        if len(self._people.get(person, ())) >= self.limits.max_chats_per_person:
            raise ChatLimitError(
                f"You have {self.limits.max_chats_per_person} chats, the most that are kept. "
                "Delete one you no longer need."
            )
        return Chat(chat_id=secrets.token_urlsafe(12))

    def with_question(self, chat: Chat, text: str) -> Chat:
        """`chat` and a message of its person. Raises ChatLimitError past the bounds."""
        if len(text) > self.limits.max_message_chars:
            raise ChatLimitError(
                f"This message has {len(text):,} characters; "
                f"the most is {self.limits.max_message_chars:,}. Shorten it."
            )
        if len(chat.messages) + 2 > self.limits.max_messages_per_chat:
            raise ChatLimitError(
                f"This chat has {len(chat.messages)} messages, the most that are kept. "
                "Start a new one."
            )
        return replace(chat, messages=(*chat.messages, Message(Role.USER, text)))

    def save(self, person: str, chat: Chat) -> None:
        """Keep `chat` as it is now, as its person's most recent one."""
        chats = self._people.setdefault(person, OrderedDict())
        chats[chat.chat_id] = chat
        chats.move_to_end(chat.chat_id)
        self._people.move_to_end(person)
        while len(self._people) > self.limits.max_people:
            self._people.popitem(last=False)

    def add_reply(self, person: str, chat_id: str, reply: Message) -> None:
        chat = self.get(person, chat_id)
        self.save(person, replace(chat, messages=(*chat.messages, reply)))

    def delete(self, person: str, chat_id: str) -> None:
        self.get(person, chat_id)
        del self._people[person][chat_id]


def without_last_reply(chat: Chat) -> Chat:
    """`chat` up to its last question."""
    if not any(message.role is Role.USER for message in chat.messages):
        raise ChatError("There is nothing to answer again yet. Write a message first.")
    messages = chat.messages
    while messages[-1].role is Role.ASSISTANT:
        messages = messages[:-1]
    return replace(chat, messages=messages)
