"""Conversations as the JSON objects of docs/protocol.md."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ui.chat.answer import Answer
from ui.chat.conversation import (
    Asked,
    Conversation,
    ConversationEntry,
    Message,
    MessageState,
    SearchHit,
)
from ui.chat.room import ContextUse
from ui.chat.settings import ChatSettings

JsonObject = dict[str, Any]


def entry_object(entry: ConversationEntry, *, is_answering: bool) -> JsonObject:
    return asdict(entry) | {"is_answering": is_answering}


def settings_object(settings: ChatSettings) -> JsonObject:
    return asdict(settings)


def message_object(message: Message) -> JsonObject:
    return {
        "message_id": message.message_id,
        "parent_id": message.parent_id,
        "role": message.role.value,
        "text": message.text,
        "revision": message.revision,
        "state": message.state.value,
        "created_s": message.created_s,
        "variant_ids": list(message.variant_ids),
        "facts": None if message.facts is None else asdict(message.facts),
        "cut": None if message.cut is None else message.cut._asdict(),
    }


def conversation_object(
    conversation: Conversation, *, max_context: int | None, answer: Answer | None
) -> JsonObject:
    """`answer`: the one that is being written there; it may say more than the database."""
    messages = conversation.messages
    if answer is not None:
        messages = tuple(answer.as_shown(message) for message in messages)
    context = None if max_context is None else context_use(conversation, max_context)
    return {
        "conversation_id": conversation.conversation_id,
        "title": conversation.title,
        "is_pinned": conversation.is_pinned,
        "is_archived": conversation.is_archived,
        "updated_s": conversation.updated_s,
        "settings": settings_object(conversation.settings),
        "messages": [message_object(message) for message in messages],
        "num_earlier": conversation.num_earlier,
        "context": None if context is None else context._asdict(),
    }


def context_use(conversation: Conversation, max_context: int) -> ContextUse | None:
    """From the newest answer whose tokens were counted; None: there is none yet."""
    for message in reversed(conversation.messages):
        facts = message.facts
        if facts is not None and facts.num_prompt_tokens is not None:
            used = facts.num_prompt_tokens + (facts.num_output_tokens or 0)
            return ContextUse(used, max_context)
    return None


def hit_object(hit: SearchHit) -> JsonObject:
    return hit._asdict()


def asked_object(asked: Asked) -> JsonObject:
    return {
        "conversation_id": asked.conversation_id,
        "question_id": asked.question_id,
        "answer_id": asked.answer_id,
    }


def is_writing(message: JsonObject) -> bool:
    return bool(message["state"] == MessageState.WRITING.value)
