"""What becomes of an answer while it is written and when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from ui.chat.characters import whole_characters
from ui.chat.conversation import MessageState, ReplyFacts
from ui.chat.storage.changes import touch
from ui.chat.storage.json_columns import facts_text
from ui.chat.storage.lookup import conversation_of_key, tree_of
from ui.chat.storage.tables import CONVERSATIONS, MESSAGES, TRANSCRIPTS
from ui.chat.storage.tree import MessageTree

NUM_KEPT_TRANSCRIPTS = 2  # of a path: its last answer, and the one before for answering again
MAX_TRANSCRIPTS = 16  # of a conversation, all branches together

Transcript = tuple[bytes, bytes]  # digest, token ids


class TextUpdate(NamedTuple):
    """All of an answer's text up to now."""

    message_id: str
    text: str


def write_texts(connection: Connection, updates: Sequence[TextUpdate]) -> None:
    """Of running answers; one that has ended in the meantime keeps what it ended with."""
    if not updates:
        return
    connection.execute(
        update(MESSAGES)
        .where(
            MESSAGES.c.message_id == bindparam("of_id"),
            MESSAGES.c.state == MessageState.WRITING.value,
        )
        .values(text=bindparam("new_text"), revision=MESSAGES.c.revision + 1),
        [{"of_id": item.message_id, "new_text": whole_characters(item.text)} for item in updates],
    )


def finish_answer(
    connection: Connection,
    message_id: str,
    *,
    text: str,
    state: MessageState,
    facts: ReplyFacts | None,
    transcript: Transcript | None,
    now_s: float,
) -> None:
    """Does nothing where the answer has ended before or was erased with its conversation."""
    query = select(MESSAGES.c.key, MESSAGES.c.conversation_key).where(
        MESSAGES.c.message_id == message_id, MESSAGES.c.state == MessageState.WRITING.value
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        return
    connection.execute(
        update(MESSAGES)
        .where(MESSAGES.c.key == found.key)
        .values(
            text=whole_characters(text),
            state=state,
            facts=facts_text(facts),
            revision=MESSAGES.c.revision + 1,
        )
    )
    conversation = conversation_of_key(connection, found.conversation_key)
    touch(connection, conversation, now_s)
    if transcript is not None:
        _keep_transcript(connection, tree_of(connection, conversation), found.key, transcript)
        _drop_old_transcripts(connection, found.conversation_key)


def transcripts(
    connection: Connection, person: str, message_ids: Sequence[str], limit: int
) -> list[Transcript]:
    """Those of the newest of these messages, newest first. `message_ids`: newest last."""
    query = (
        select(MESSAGES.c.message_id, TRANSCRIPTS.c.digest, TRANSCRIPTS.c.token_ids)
        .join(MESSAGES, MESSAGES.c.key == TRANSCRIPTS.c.message_key)
        .join(CONVERSATIONS, CONVERSATIONS.c.key == MESSAGES.c.conversation_key)
        .where(CONVERSATIONS.c.person == person, MESSAGES.c.message_id.in_(message_ids))
    )
    kept = {row.message_id: (row.digest, row.token_ids) for row in connection.execute(query)}
    newest = [kept[message_id] for message_id in reversed(message_ids) if message_id in kept]
    return newest[:limit]


def interrupt_unfinished(connection: Connection) -> int:
    changed = connection.execute(
        update(MESSAGES)
        .where(MESSAGES.c.state == MessageState.WRITING.value)
        .values(state=MessageState.INTERRUPTED, revision=MESSAGES.c.revision + 1)
    )
    return changed.rowcount


def _keep_transcript(
    connection: Connection, tree: MessageTree, key: int, transcript: Transcript
) -> None:
    """The newest ones of this path stay; older ones say nothing that those do not."""
    line = tree.line_to(key)
    if _has_deleted_since(connection, line, key):
        return  # its token ids tell what a person has deleted, and fit nothing any more
    query = select(TRANSCRIPTS.c.message_key).where(TRANSCRIPTS.c.message_key.in_(line[:-1]))
    older = sorted(connection.execute(query).scalars())
    outdated = [key, *older[: len(older) - (NUM_KEPT_TRANSCRIPTS - 1)]]
    connection.execute(delete(TRANSCRIPTS).where(TRANSCRIPTS.c.message_key.in_(outdated)))
    digest, token_ids = transcript
    connection.execute(
        insert(TRANSCRIPTS).values(message_key=key, digest=digest, token_ids=token_ids)
    )


def _has_deleted_since(connection: Connection, line: Sequence[int], key: int) -> bool:
    """Whether one of these messages was deleted after the message `key` began."""
    begun_s = select(MESSAGES.c.created_s).where(MESSAGES.c.key == key).scalar_subquery()
    query = select(MESSAGES.c.key).where(MESSAGES.c.key.in_(line), MESSAGES.c.deleted_s >= begun_s)
    return connection.execute(query.limit(1)).first() is not None


def _drop_old_transcripts(connection: Connection, conversation_key: int) -> None:
    """Branches have transcripts of their own, and there may be many of them."""
    oldest = (
        select(TRANSCRIPTS.c.message_key)
        .join(MESSAGES, MESSAGES.c.key == TRANSCRIPTS.c.message_key)
        .where(MESSAGES.c.conversation_key == conversation_key)
        .order_by(TRANSCRIPTS.c.message_key.desc())
        .offset(MAX_TRANSCRIPTS)
    )
    connection.execute(delete(TRANSCRIPTS).where(TRANSCRIPTS.c.message_key.in_(oldest)))
