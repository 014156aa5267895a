"""Hearth's own JSON: conversations with all their branches, settings and figures.

{"format": "hearth-conversations", "version": 1, "conversations": [
{"conversation_id": ..., "title": ..., "messages": [{"message_id", "parent_id", ...}]},
...
]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine import InvalidParameterError
from ui.chat.conversation import ContextCut, MessageState, Role
from ui.chat.exchange.fields import (
    BrokenEntryError,
    flag,
    identifier,
    identifier_or_none,
    object_list,
    plain_text,
    seconds,
)
from ui.chat.settings import ChatSettings
from ui.chat.storage.json_columns import facts_from_json, facts_json
from ui.chat.storage.whole import WholeConversation, WholeMessage

FORMAT = "hearth-conversations"
VERSION = 1


def export_json(conversations: Iterable[WholeConversation]) -> Iterator[bytes]:
    """One conversation at a time; the parts together are one JSON document."""
    yield f'{{"format": "{FORMAT}", "version": {VERSION}, "conversations": ['.encode()
    separator = b"\n"
    for conversation in conversations:
        yield separator + json.dumps(_conversation_json(conversation)).encode()
        separator = b",\n"
    yield b"\n]}\n"


def is_own_json(document: object) -> bool:
    return isinstance(document, Mapping) and document.get("format") == FORMAT


def entries_of(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conversations of a file, unread. Raises BrokenEntryError: not a file of this version."""
    version = document.get("version")
    if version != VERSION:
        raise BrokenEntryError(
            f"This file's version is {str(version)[:20]!r}, and only {VERSION} is known here: it "
            "comes from a newer Hearth."
        )
    return object_list(document, "conversations")


def conversation_from(entry: Mapping[str, Any]) -> WholeConversation:
    """Raises BrokenEntryError."""
    try:
        settings = ChatSettings.from_json(entry.get("settings", {}), ignore_unknown=True)
    except InvalidParameterError as error:
        raise BrokenEntryError(str(error)) from None
    return WholeConversation(
        conversation_id=identifier(entry, "conversation_id"),
        title=plain_text(entry, "title"),
        is_titled_by_person=flag(entry, "is_titled_by_person"),
        settings=settings,
        is_pinned=flag(entry, "is_pinned"),
        is_archived=flag(entry, "is_archived"),
        created_s=seconds(entry, "created_s"),
        updated_s=seconds(entry, "updated_s"),
        active_root_id=identifier_or_none(entry, "active_root_id"),
        messages=tuple(_message_from(item) for item in object_list(entry, "messages")),
    )


def _message_from(item: Mapping[str, Any]) -> WholeMessage:
    try:
        role, state = Role(str(item.get("role"))), MessageState(str(item.get("state", "done")))
    except ValueError as error:
        raise BrokenEntryError(f"A message has no known role or state: {error}.") from None
    return WholeMessage(
        message_id=identifier(item, "message_id"),
        parent_id=identifier_or_none(item, "parent_id"),
        role=role,
        text=plain_text(item, "text"),
        state=state,
        created_s=seconds(item, "created_s"),
        active_child_id=identifier_or_none(item, "active_child_id"),
        facts=facts_from_json(item.get("facts")),
        cut=_cut_from(item.get("cut")),
    )


def _cut_from(value: object) -> ContextCut | None:
    if not isinstance(value, Mapping):
        return None
    number = value.get("num_left_out")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise BrokenEntryError("A cut does not say how many messages it leaves out.")
    return ContextCut(identifier(value, "first_message_id"), number, plain_text(value, "summary"))


def _conversation_json(conversation: WholeConversation) -> dict[str, Any]:
    return {
        "conversation_id": conversation.conversation_id,
        "title": conversation.title,
        "is_titled_by_person": conversation.is_titled_by_person,
        "is_pinned": conversation.is_pinned,
        "is_archived": conversation.is_archived,
        "created_s": conversation.created_s,
        "updated_s": conversation.updated_s,
        "settings": conversation.settings.to_json(),
        "active_root_id": conversation.active_root_id,
        "messages": [_message_json(message) for message in conversation.messages],
    }


def _message_json(message: WholeMessage) -> dict[str, Any]:
    return {
        "message_id": message.message_id,
        "parent_id": message.parent_id,
        "role": message.role.value,
        "state": message.state.value,
        "created_s": message.created_s,
        "active_child_id": message.active_child_id,
        "facts": None if message.facts is None else facts_json(message.facts),
        "cut": None if message.cut is None else message.cut._asdict(),
        "text": message.text,
    }
