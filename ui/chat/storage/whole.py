"""Conversations with all their branches, taken out of the database and put into one.

Deleted messages stay out; what is below one moves up to the nearest message above it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from ui.chat.conversation import ContextCut, MessageState, ReplyFacts, Role
from ui.chat.settings import ChatSettings
from ui.chat.storage.changes import add_to_search_index
from ui.chat.storage.json_columns import (
    cut_of,
    cut_text,
    facts_of,
    facts_text,
    settings_of,
    settings_text,
)
from ui.chat.storage.lookup import conversation_row, tree_of
from ui.chat.storage.tables import CONVERSATIONS, MESSAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeMessage:
    message_id: str
    parent_id: str | None
    role: Role
    text: str
    state: MessageState = MessageState.DONE
    created_s: float = 0.0
    active_child_id: str | None = None  # where the path goes on
    facts: ReplyFacts | None = None
    cut: ContextCut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeConversation:
    """`messages` hold each parent before its children."""

    conversation_id: str
    title: str
    is_titled_by_person: bool = True
    settings: ChatSettings = field(default_factory=ChatSettings)
    is_pinned: bool = False
    is_archived: bool = False
    created_s: float = 0.0
    updated_s: float = 0.0
    active_root_id: str | None = None
    messages: tuple[WholeMessage, ...] = ()


class Added(NamedTuple):
    num_new: int
    num_known: int  # were there already, and stay as they are


def whole_conversation(
    connection: Connection, person: str, conversation_id: str
) -> WholeConversation:
    """Raises NotFoundError."""
    row = conversation_row(connection, person, conversation_id)
    tree = tree_of(connection, row)

    def id_of(key: int | None) -> str | None:
        return None if key is None else tree.message_id(key)

    query = (
        select(MESSAGES)
        .where(MESSAGES.c.conversation_key == row["key"], MESSAGES.c.deleted_s.is_(None))
        .order_by(MESSAGES.c.key)
    )
    messages = tuple(
        WholeMessage(
            message_id=message["message_id"],
            parent_id=id_of(tree.shown_parent(message["key"])),
            role=Role(message["role"]),
            text=message["text"],
            state=MessageState(message["state"]),
            created_s=message["created_s"],
            active_child_id=id_of(tree.next_shown(message["key"])),
            facts=facts_of(message["facts"]),
            cut=cut_of(message["cut"]),
        )
        for message in connection.execute(query).mappings()
    )
    return WholeConversation(
        conversation_id=row["conversation_id"],
        title=row["title"],
        is_titled_by_person=row["is_titled_by_person"],
        settings=settings_of(row["settings"]),
        is_pinned=row["is_pinned"],
        is_archived=row["is_archived"],
        created_s=row["created_s"],
        updated_s=row["updated_s"],
        active_root_id=id_of(tree.next_shown(None)),
        messages=messages,
    )


def add_whole(
    connection: Connection, person: str, conversations: Sequence[WholeConversation]
) -> Added:
    """Add those that are not there yet. One that was deleted, but not yet erased, comes back.

    Ids stay what they are, unless another person has them: then they become others, the same ones
    each time, so that a second import finds the first.
    """
    num_new, first_key = 0, _next_key(connection)
    for conversation in conversations:
        own = with_ids_of(person, conversation)
        state = _state_of(connection, person, conversation.conversation_id)
        if state is None or (state is _FREE and _has_taken_ids(connection, conversation)):
            conversation, state = own, _state_of(connection, person, own.conversation_id)
        if state is _FREE:
            _insert(connection, person, conversation)
            num_new += 1
        elif state is _DELETED:
            connection.execute(
                update(CONVERSATIONS)
                .where(CONVERSATIONS.c.conversation_id == conversation.conversation_id)
                .values(deleted_s=None)
            )
            num_new += 1
    add_to_search_index(connection, first_key)
    return Added(num_new, len(conversations) - num_new)


def with_ids_of(person: str, conversation: WholeConversation) -> WholeConversation:
    """The same with ids that only this person's import of it can have."""

    def renewed(old_id: str) -> str:
        source = "\0".join((person, conversation.conversation_id, old_id))
        return hashlib.blake2b(source.encode(), digest_size=16).hexdigest()

    def renewed_or_none(old_id: str | None) -> str | None:
        return None if old_id is None else renewed(old_id)

    def renewed_message(message: WholeMessage) -> WholeMessage:
        cut = message.cut
        return replace(
            message,
            message_id=renewed(message.message_id),
            parent_id=renewed_or_none(message.parent_id),
            active_child_id=renewed_or_none(message.active_child_id),
            cut=cut and cut._replace(first_message_id=renewed(cut.first_message_id)),
        )

    return replace(
        conversation,
        conversation_id=renewed(conversation.conversation_id),
        active_root_id=renewed_or_none(conversation.active_root_id),
        messages=tuple(renewed_message(message) for message in conversation.messages),
    )


_FREE, _KEPT, _DELETED = "free", "kept", "deleted"


def _state_of(connection: Connection, person: str, conversation_id: str) -> str | None:
    """What this id is for this person; None: another's."""
    query = select(CONVERSATIONS.c.person, CONVERSATIONS.c.deleted_s).where(
        CONVERSATIONS.c.conversation_id == conversation_id
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        return _FREE
    if found.person != person:
        return None
    return _KEPT if found.deleted_s is None else _DELETED


def _has_taken_ids(connection: Connection, conversation: WholeConversation) -> bool:
    ids = [message.message_id for message in conversation.messages]
    query = select(MESSAGES.c.key).where(MESSAGES.c.message_id.in_(ids)).limit(1)
    return connection.execute(query).first() is not None


def _insert(connection: Connection, person: str, conversation: WholeConversation) -> None:
    first_key = _next_key(connection)
    keys: dict[str | None, int | None] = {None: None}
    for key, message in enumerate(conversation.messages, first_key):
        keys[message.message_id] = key
    inserted = connection.execute(
        insert(CONVERSATIONS).values(
            conversation_id=conversation.conversation_id,
            person=person,
            title=conversation.title,
            is_titled_by_person=conversation.is_titled_by_person,
            settings=settings_text(conversation.settings),
            is_pinned=conversation.is_pinned,
            is_archived=conversation.is_archived,
            created_s=conversation.created_s,
            updated_s=conversation.updated_s,
            active_root_key=keys[conversation.active_root_id],
        )
    )
    conversation_key = int(inserted.inserted_primary_key[0])  # type: ignore[index]
    rows = [_message_values(message, keys, conversation_key) for message in conversation.messages]
    if rows:
        connection.execute(insert(MESSAGES), rows)


def _next_key(connection: Connection) -> int:
    return 1 + (connection.execute(select(func.max(MESSAGES.c.key))).scalar() or 0)


def _message_values(
    message: WholeMessage, keys: dict[str | None, int | None], conversation_key: int
) -> dict[str, Any]:
    is_unfinished = message.state is MessageState.WRITING
    return {
        "key": keys[message.message_id],
        "message_id": message.message_id,
        "conversation_key": conversation_key,
        "parent_key": keys[message.parent_id],
        "active_child_key": keys[message.active_child_id],
        "role": message.role.value,
        "state": (MessageState.INTERRUPTED if is_unfinished else message.state).value,
        "revision": 1,
        "created_s": message.created_s,
        "is_erased": False,
        "facts": facts_text(message.facts),
        "cut": cut_text(message.cut),
        "text": message.text,
    }
