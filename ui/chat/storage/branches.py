"""Choosing, editing, deleting and restoring single messages of a conversation's tree."""

from __future__ import annotations

from sqlalchemy import Connection, RowMapping, delete, update

from ui.chat.characters import whole_characters
from ui.chat.conversation import ChatError, ConflictError, Message, MessageState, Role
from ui.chat.storage.changes import add_message, num_messages, touch
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.lookup import (
    conversation_of_key,
    follow,
    message_row,
    messages_of,
    tree_of,
)
from ui.chat.storage.tables import MESSAGES, TRANSCRIPTS


def edit_answer(
    connection: Connection,
    person: str,
    message_id: str,
    *,
    text: str,
    new_id: str,
    limits: ConversationLimits,
    now_s: float,
) -> Message:
    """A variant of the answer with the person's own text; the old one stays. Raises ChatError."""
    answer = message_row(connection, person, message_id)
    _refuse_writing(answer)
    if answer["role"] != Role.ASSISTANT:
        raise ConflictError("Only an answer can be edited in place: ask the new question instead.")
    if not text.strip():
        raise ChatError("An answer cannot be empty: delete it instead.")
    limits.check_text(text)
    conversation = conversation_of_key(connection, answer["conversation_key"])
    limits.check_num_messages(num_messages(connection, conversation) + 1)
    key = add_message(
        connection,
        conversation,
        new_id,
        answer["parent_key"],
        role=Role.ASSISTANT,
        text=whole_characters(text),
        created_s=now_s,
    )
    touch(connection, conversation, now_s)
    tree = tree_of(connection, conversation_of_key(connection, conversation["key"]))
    return messages_of(connection, tree, [key])[0]


def select_message(connection: Connection, person: str, message_id: str) -> str:
    """The path leads through this message. Gives the conversation's id. Raises NotFoundError."""
    message = message_row(connection, person, message_id)
    return _lead_through(connection, message)


def delete_message(connection: Connection, person: str, message_id: str, now_s: float) -> str:
    """Hide it; what is below stays. Gives the conversation's id. Raises ChatError."""
    message = message_row(connection, person, message_id, may_be_deleted=True)
    conversation = conversation_of_key(connection, message["conversation_key"])
    if message["deleted_s"] is None:
        _refuse_writing(message)
        tree = tree_of(connection, conversation)
        follow(connection, conversation["key"], tree.steps_after_deleting(message["key"]))
        _set_deleted(connection, message["key"], now_s)
        # Token ids of what was said from here on tell what was deleted, and fit nothing any more.
        outdated = [message["key"], *tree.descendants(message["key"])]
        connection.execute(delete(TRANSCRIPTS).where(TRANSCRIPTS.c.message_key.in_(outdated)))
    return str(conversation["conversation_id"])


def restore_message(connection: Connection, person: str, message_id: str) -> str:
    """Show it again, where it was. Gives the conversation's id. Raises NotFoundError."""
    message = message_row(connection, person, message_id, may_be_deleted=True)
    if message["deleted_s"] is None:
        return str(conversation_of_key(connection, message["conversation_key"])["conversation_id"])
    _set_deleted(connection, message["key"], None)
    return _lead_through(connection, message)


def _lead_through(connection: Connection, message: RowMapping) -> str:
    conversation = conversation_of_key(connection, message["conversation_key"])
    tree = tree_of(connection, conversation)
    follow(connection, conversation["key"], tree.steps_to(message["key"]))
    return str(conversation["conversation_id"])


def _set_deleted(connection: Connection, key: int, deleted_s: float | None) -> None:
    connection.execute(
        update(MESSAGES)
        .where(MESSAGES.c.key == key)
        .values(deleted_s=deleted_s, revision=MESSAGES.c.revision + 1)
    )


def _refuse_writing(message: RowMapping) -> None:
    if message["state"] == MessageState.WRITING:
        raise ConflictError("This answer is being written: wait for its end, or stop it.")
