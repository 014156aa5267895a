"""What a person does with whole conversations, and with the settings they keep."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from ui.chat.characters import one_line
from ui.chat.conversation import ChatError, ConversationEntry, LimitError, NotFoundError
from ui.chat.settings import ChatSettings
from ui.chat.storage.changes import num_conversations
from ui.chat.storage.json_columns import settings_of, settings_text
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.lookup import NO_CONVERSATION, conversation_row, entry_from
from ui.chat.storage.tables import CONVERSATIONS, PRESETS

RESTORABLE_S = 24 * 3600.0


def change(
    connection: Connection, person: str, conversation_id: str, **values: Any
) -> ConversationEntry:
    """Raises NotFoundError."""
    row = conversation_row(connection, person, conversation_id)
    connection.execute(
        update(CONVERSATIONS).where(CONVERSATIONS.c.key == row["key"]).values(**values)
    )
    return entry_from(conversation_row(connection, person, conversation_id))


def set_title(
    connection: Connection,
    person: str,
    conversation_id: str,
    title: str,
    *,
    by_person: bool,
    limits: ConversationLimits,
) -> ConversationEntry:
    """An automatic title gives way to a person's, never the other way. Raises ChatError."""
    row = conversation_row(connection, person, conversation_id)
    line = one_line(title)
    if not by_person:
        line = line[: limits.max_title_chars]
        if row["is_titled_by_person"] or not line:
            return entry_from(row)
    if not line:
        raise ChatError("A title needs at least one character.")
    if len(line) > limits.max_title_chars:
        raise LimitError(f"A title may have {limits.max_title_chars} characters: shorten it.")
    return change(connection, person, conversation_id, title=line, is_titled_by_person=by_person)


def delete_conversation(
    connection: Connection, person: str, conversation_id: str, now_s: float
) -> None:
    """Again does nothing. Raises NotFoundError."""
    row = conversation_row(connection, person, conversation_id, may_be_deleted=True)
    if row["deleted_s"] is None:
        connection.execute(
            update(CONVERSATIONS).where(CONVERSATIONS.c.key == row["key"]).values(deleted_s=now_s)
        )


def restore_conversation(
    connection: Connection,
    person: str,
    conversation_id: str,
    limits: ConversationLimits,
    now_s: float,
) -> ConversationEntry:
    """Raises NotFoundError: there is none, or it was deleted too long ago; LimitError."""
    row = conversation_row(connection, person, conversation_id, may_be_deleted=True)
    if row["deleted_s"] is None:
        return entry_from(row)
    if now_s - row["deleted_s"] > RESTORABLE_S:
        raise NotFoundError(NO_CONVERSATION)
    limits.check_num_conversations(num_conversations(connection, person) + 1)
    connection.execute(
        update(CONVERSATIONS).where(CONVERSATIONS.c.key == row["key"]).values(deleted_s=None)
    )
    return entry_from(row)


def presets(connection: Connection, person: str) -> tuple[tuple[str, ChatSettings], ...]:
    """By name."""
    query = select(PRESETS).where(PRESETS.c.person == person)
    rows = sorted(connection.execute(query), key=lambda row: (row.name.casefold(), row.name))
    return tuple((row.name, settings_of(row.settings)) for row in rows)


def save_preset(
    connection: Connection,
    person: str,
    name: str,
    settings: ChatSettings,
    limits: ConversationLimits,
) -> None:
    """Replaces one of the same name. Raises ChatError."""
    line = one_line(name)
    if not line:
        raise ChatError("A preset needs a name.")
    if len(line) > limits.max_preset_name_chars:
        raise LimitError(
            f"A preset's name may have {limits.max_preset_name_chars} characters: shorten it."
        )
    new = insert(PRESETS).values(person=person, name=line, settings=settings_text(settings))
    connection.execute(
        new.on_conflict_do_update(
            index_elements=["person", "name"], set_={"settings": new.excluded.settings}
        )
    )
    query = select(func.count()).where(PRESETS.c.person == person)
    if connection.execute(query).scalar_one() > limits.max_presets:
        raise LimitError(f"{limits.max_presets} presets are the most: delete one first.")


def delete_preset(connection: Connection, person: str, name: str) -> None:
    """Raises NotFoundError."""
    mine = (PRESETS.c.person == person) & (PRESETS.c.name == one_line(name))
    if connection.execute(delete(PRESETS).where(mine)).rowcount == 0:
        raise NotFoundError("There is no preset of this name.")
