"""Finding a person's rows. Whatever is another person's does not exist for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, select, update

from ui.chat.conversation import (
    Conversation,
    ConversationEntry,
    Message,
    MessageState,
    NotFoundError,
    Role,
)
from ui.chat.storage.json_columns import cut_of, facts_of, settings_of
from ui.chat.storage.tables import CONVERSATIONS, MESSAGES
from ui.chat.storage.tree import MessageTree, Step, TreeNode

NO_CONVERSATION = "This conversation does not exist (any more)."
NO_MESSAGE = "This message does not exist (any more)."


def conversation_row(
    connection: Connection, person: str, conversation_id: str, *, may_be_deleted: bool = False
) -> RowMapping:
    """Raises NotFoundError."""
    query = select(CONVERSATIONS).where(
        CONVERSATIONS.c.conversation_id == conversation_id, CONVERSATIONS.c.person == person
    )
    if not may_be_deleted:
        query = query.where(CONVERSATIONS.c.deleted_s.is_(None))
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise NotFoundError(NO_CONVERSATION)
    return row


def message_row(
    connection: Connection, person: str, message_id: str, *, may_be_deleted: bool = False
) -> RowMapping:
    """Of a conversation that is not deleted. Raises NotFoundError."""
    query = (
        select(MESSAGES)
        .join(CONVERSATIONS, CONVERSATIONS.c.key == MESSAGES.c.conversation_key)
        .where(
            MESSAGES.c.message_id == message_id,
            CONVERSATIONS.c.person == person,
            CONVERSATIONS.c.deleted_s.is_(None),
        )
    )
    if not may_be_deleted:
        query = query.where(MESSAGES.c.deleted_s.is_(None))
    row = connection.execute(query).mappings().one_or_none()
    if row is None or row["is_erased"]:
        raise NotFoundError(NO_MESSAGE)
    return row


def conversation_of_key(connection: Connection, key: int) -> RowMapping:
    query = select(CONVERSATIONS).where(CONVERSATIONS.c.key == key)
    return connection.execute(query).mappings().one()


def tree_of(connection: Connection, conversation: RowMapping) -> MessageTree:
    """Read from an index that holds all of it, so that no text is touched."""
    columns = MESSAGES.c
    rows = connection.execute(
        select(
            columns.key,
            columns.parent_key,
            columns.active_child_key,
            columns.deleted_s,
            columns.message_id,
        ).where(columns.conversation_key == conversation["key"])
    )
    nodes = (
        TreeNode(key, parent_key, child_key, deleted_s is not None, message_id)
        for key, parent_key, child_key, deleted_s, message_id in rows
    )
    return MessageTree(nodes, conversation["active_root_key"])


def follow(connection: Connection, conversation_key: int, steps: Iterable[Step]) -> None:
    """Store where the path goes from now on."""
    for step in steps:
        if step.parent_key is None:
            connection.execute(
                update(CONVERSATIONS)
                .where(CONVERSATIONS.c.key == conversation_key)
                .values(active_root_key=step.child_key)
            )
        else:
            connection.execute(
                update(MESSAGES)
                .where(MESSAGES.c.key == step.parent_key)
                .values(active_child_key=step.child_key)
            )


def messages_of(connection: Connection, tree: MessageTree, keys: list[int]) -> tuple[Message, ...]:
    """With their texts, in the order of `keys`."""
    rows = {row["key"]: row for row in _rows(connection, keys)}
    return tuple(_message(rows[key], tree) for key in keys if key in rows)


def conversation_from(
    row: RowMapping, messages: tuple[Message, ...], num_earlier: int
) -> Conversation:
    return Conversation(
        conversation_id=row["conversation_id"],
        title=row["title"],
        settings=settings_of(row["settings"]),
        is_pinned=row["is_pinned"],
        is_archived=row["is_archived"],
        updated_s=row["updated_s"],
        messages=messages,
        num_earlier=num_earlier,
    )


def entry_from(row: RowMapping) -> ConversationEntry:
    return ConversationEntry(
        conversation_id=row["conversation_id"],
        title=row["title"],
        is_pinned=row["is_pinned"],
        is_archived=row["is_archived"],
        updated_s=row["updated_s"],
    )


def entries_query(person: str) -> Select[Any]:
    columns = CONVERSATIONS.c
    return (
        select(
            columns.conversation_id,
            columns.title,
            columns.is_pinned,
            columns.is_archived,
            columns.updated_s,
        )
        .where(columns.person == person, columns.deleted_s.is_(None))
        .order_by(columns.is_pinned.desc(), columns.updated_s.desc(), columns.key.desc())
    )


def _rows(connection: Connection, keys: list[int]) -> Iterable[RowMapping]:
    return connection.execute(select(MESSAGES).where(MESSAGES.c.key.in_(keys))).mappings()


def _message(row: RowMapping, tree: MessageTree) -> Message:
    parent_key = row["parent_key"]
    return Message(
        message_id=row["message_id"],
        parent_id=None if parent_key is None else tree.message_id(parent_key),
        role=Role(row["role"]),
        text=row["text"],
        state=MessageState(row["state"]),
        facts=facts_of(row["facts"]),
        cut=cut_of(row["cut"]),
        created_s=row["created_s"],
        revision=row["revision"],
        variant_ids=tuple(tree.message_id(key) for key in tree.variants(row["key"])),
    )
