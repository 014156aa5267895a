"""Changes that several of the store's operations make."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select, text, update

from ui.chat.conversation import ChatError, ConflictError, MessageState
from ui.chat.settings import ChatSettings
from ui.chat.storage.json_columns import settings_text
from ui.chat.storage.lookup import conversation_of_key, follow, tree_of
from ui.chat.storage.tables import CONVERSATIONS, MESSAGES, SEARCH_INDEX

_MAX_ID_CHARS = 64


def num_conversations(connection: Connection, person: str) -> int:
    query = select(func.count()).where(
        CONVERSATIONS.c.person == person, CONVERSATIONS.c.deleted_s.is_(None)
    )
    return connection.execute(query).scalar_one()


def num_messages(connection: Connection, conversation: RowMapping) -> int:
    query = select(func.count()).where(MESSAGES.c.conversation_key == conversation["key"])
    return connection.execute(query).scalar_one()


def refuse_while_writing(connection: Connection, conversation: RowMapping) -> None:
    """Raises ConflictError."""
    query = select(MESSAGES.c.key).where(
        MESSAGES.c.conversation_key == conversation["key"],
        MESSAGES.c.state == MessageState.WRITING.value,
    )
    if connection.execute(query.limit(1)).first() is not None:
        raise ConflictError(
            "An answer is being written in this conversation: wait for its end, or stop it."
        )


def add_message(
    connection: Connection,
    conversation: RowMapping,
    message_id: str,
    parent_key: int | None,
    **values: Any,
) -> int:
    """Below `parent_key`, and on the path from now on; gives its key. Raises ChatError."""
    _check_id(connection, message_id)
    usual = {"state": MessageState.DONE, "revision": 1, "is_erased": False}
    inserted = connection.execute(
        insert(MESSAGES).values(
            message_id=message_id,
            conversation_key=conversation["key"],
            parent_key=parent_key,
            **{**usual, **values},
        )
    )
    key = int(inserted.inserted_primary_key[0])  # type: ignore[index]
    add_to_search_index(connection, key)
    fresh = conversation_of_key(connection, conversation["key"])
    follow(connection, conversation["key"], tree_of(connection, fresh).steps_to(key))
    return key


def add_to_search_index(connection: Connection, first_key: int) -> None:
    """Of messages that were just inserted, from this key on. Triggers see to later changes."""
    connection.execute(
        text(
            f"INSERT INTO {SEARCH_INDEX} (rowid, text) "
            "SELECT key, text FROM messages WHERE key >= :first_key AND state <> 'writing'"
        ),
        {"first_key": first_key},
    )


def touch(
    connection: Connection,
    conversation: RowMapping,
    now_s: float,
    settings: ChatSettings | None = None,
) -> None:
    """Moves it to the top of the list, with the settings used last."""
    values: dict[str, Any] = {"updated_s": now_s}
    if settings is not None:
        values["settings"] = settings_text(settings)
    connection.execute(
        update(CONVERSATIONS).where(CONVERSATIONS.c.key == conversation["key"]).values(**values)
    )


def _check_id(connection: Connection, message_id: str) -> None:
    is_plain = message_id.replace("-", "").replace("_", "").isalnum() and message_id.isascii()
    if not is_plain or len(message_id) > _MAX_ID_CHARS:
        raise ChatError("A message's id must be 1 to 64 characters of A-Z, a-z, 0-9, - and _.")
    query = select(MESSAGES.c.key).where(MESSAGES.c.message_id == message_id)
    if connection.execute(query).first() is not None:
        raise ConflictError("A message with this id exists already: send it again.")
