"""Erases for good what was deleted long enough ago, its traces in the search index too."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, RowMapping, delete, exists, select, update

from ui.chat.storage.database import Database
from ui.chat.storage.json_columns import cut_of, cut_text
from ui.chat.storage.lookup import conversation_of_key, tree_of
from ui.chat.storage.tables import CONVERSATIONS, MESSAGES, SEARCH_INDEX, TRANSCRIPTS

_BATCH = 50  # conversations or messages of a transaction, so that others can write in between
_MERGE_PAGES = 500


def purge(database: Database, before_s: float) -> int:
    """Erase what was deleted before this time; gives the number of conversations and messages."""
    num_erased = 0
    while (num := _erase_conversations(database, before_s)) > 0:
        num_erased += num
    while (num := _erase_messages(database, before_s)) > 0:
        num_erased += num
    if num_erased:
        _forget_erased_words(database)
        database.empty_log()
    return num_erased


class DueMessage(NamedTuple):
    person: str
    message_id: str


def due_messages(database: Database, before_s: float) -> list[DueMessage]:
    """What `purge` would erase, by itself or with its conversation."""
    is_due = (CONVERSATIONS.c.deleted_s < before_s) | (
        (MESSAGES.c.deleted_s < before_s) & MESSAGES.c.is_erased.is_(False)
    )
    query = (
        select(CONVERSATIONS.c.person, MESSAGES.c.message_id)
        .join(MESSAGES, MESSAGES.c.conversation_key == CONVERSATIONS.c.key)
        .where(is_due)
    )
    with database.reading() as connection:
        return [DueMessage(*row) for row in connection.execute(query)]


def _erase_conversations(database: Database, before_s: float) -> int:
    with database.writing() as connection:
        due = select(CONVERSATIONS.c.key).where(CONVERSATIONS.c.deleted_s < before_s).limit(_BATCH)
        keys = connection.execute(due).scalars().all()
        connection.execute(delete(CONVERSATIONS).where(CONVERSATIONS.c.key.in_(keys)))
        return len(keys)


def _erase_messages(database: Database, before_s: float) -> int:
    with database.writing() as connection:
        due = (
            select(MESSAGES)
            .where(MESSAGES.c.deleted_s < before_s, MESSAGES.c.is_erased.is_(False))
            .limit(_BATCH)
        )
        rows = connection.execute(due).mappings().all()
        for row in rows:
            _erase_message(connection, row)
        for row in rows:
            _drop_dead_end(connection, row["key"])
        return len(rows)


def _erase_message(connection: Connection, message: RowMapping) -> None:
    """Its place in the tree stays. Summaries made of it go: without one, it is just left out."""
    connection.execute(
        update(MESSAGES)
        .where(MESSAGES.c.key == message["key"])
        .values(text="", facts=None, cut=None, is_erased=True)
    )
    connection.execute(delete(TRANSCRIPTS).where(TRANSCRIPTS.c.message_key == message["key"]))
    tree = tree_of(connection, conversation_of_key(connection, message["conversation_key"]))
    below = select(MESSAGES.c.key, MESSAGES.c.cut).where(
        MESSAGES.c.key.in_(tree.descendants(message["key"])), MESSAGES.c.cut.is_not(None)
    )
    for key, text in connection.execute(below).all():
        cut = cut_of(text)
        assert cut is not None
        connection.execute(
            update(MESSAGES)
            .where(MESSAGES.c.key == key)
            .values(cut=cut_text(cut._replace(summary="")), revision=MESSAGES.c.revision + 1)
        )


def _drop_dead_end(connection: Connection, key: int | None) -> None:
    """Remove an erased message with nothing below it, and then those above of the same kind."""
    child = MESSAGES.alias()
    while key is not None:
        query = select(MESSAGES.c.parent_key).where(
            MESSAGES.c.key == key,
            MESSAGES.c.is_erased,
            ~exists().where(child.c.parent_key == MESSAGES.c.key),
        )
        found = connection.execute(query).one_or_none()
        if found is None:
            return
        _turn_away_from(connection, key)
        connection.execute(delete(MESSAGES).where(MESSAGES.c.key == key))
        key = found.parent_key


def _turn_away_from(connection: Connection, key: int) -> None:
    """No path leads there any more: the key may be given to another message."""
    above = select(MESSAGES.c.parent_key).where(MESSAGES.c.key == key).scalar_subquery()
    connection.execute(
        update(MESSAGES)
        .where(MESSAGES.c.key == above, MESSAGES.c.active_child_key == key)
        .values(active_child_key=None)
    )
    around = select(MESSAGES.c.conversation_key).where(MESSAGES.c.key == key).scalar_subquery()
    connection.execute(
        update(CONVERSATIONS)
        .where(CONVERSATIONS.c.key == around, CONVERSATIONS.c.active_root_key == key)
        .values(active_root_key=None)
    )


def _forget_erased_words(database: Database) -> None:
    """Merge the index's parts until none holds words of what is gone."""
    merge = f"INSERT INTO {SEARCH_INDEX} ({SEARCH_INDEX}, rank) VALUES ('merge', ?)"
    pages = -_MERGE_PAGES  # negative: all parts into one, begun here and then gone on with
    while True:
        with database.writing() as connection:
            before = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
            connection.exec_driver_sql(merge, (pages,))
            after = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        if after - before < 2:
            return
        pages = _MERGE_PAGES
