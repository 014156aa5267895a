"""Questions, and the empty answers that wait for their text."""

from __future__ import annotations

import secrets
from enum import Enum
from typing import NamedTuple

from sqlalchemy import Connection, RowMapping, insert, select, update

from ui.chat.characters import first_words, whole_characters
from ui.chat.conversation import (
    Asked,
    ChatError,
    ConflictError,
    ContextCut,
    Message,
    MessageState,
    NotFoundError,
    Role,
)
from ui.chat.settings import ChatSettings
from ui.chat.storage.changes import (
    add_message,
    num_conversations,
    num_messages,
    refuse_while_writing,
    touch,
)
from ui.chat.storage.json_columns import cut_text, settings_text
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.lookup import (
    NO_MESSAGE,
    conversation_of_key,
    conversation_row,
    follow,
    message_row,
    messages_of,
    tree_of,
)
from ui.chat.storage.tables import CONVERSATIONS, MESSAGES

MAX_AUTOMATIC_TITLE_CHARS = 48


class Unset(Enum):
    """Told apart from None, which is a value here."""

    UNSET = "unset"


UNSET = Unset.UNSET


class PathAbove(NamedTuple):
    """What a new question comes after, and hangs below: `parent_id` may be a hidden message."""

    messages: tuple[Message, ...]
    parent_id: str | None


class Question(NamedTuple):
    """What a person sends. `parent_id` None: a first question; UNSET: at the end of the path."""

    conversation_id: str | None
    parent_id: str | Unset | None
    question_id: str
    answer_id: str
    text: str
    settings: ChatSettings
    cut: ContextCut | None


def path_above(
    connection: Connection, person: str, conversation_id: str, parent_id: str | Unset | None
) -> PathAbove:
    """Raises NotFoundError."""
    conversation = conversation_row(connection, person, conversation_id)
    tree = tree_of(connection, conversation)
    key = _parent_key(connection, conversation, parent_id)
    if key is None:
        return PathAbove((), None)
    shown = [above for above in tree.line_to(key) if not tree.is_deleted(above)]
    return PathAbove(messages_of(connection, tree, shown), tree.message_id(key))


def ask(
    connection: Connection,
    person: str,
    question: Question,
    limits: ConversationLimits,
    now_s: float,
) -> Asked:
    """Raises ChatError."""
    known = _asked_before(connection, person, question.question_id)
    if known is not None:
        return known
    if not question.text.strip():
        raise ChatError("Write something first.")
    limits.check_text(question.text)
    conversation = _conversation_for(connection, person, question, limits, now_s)
    refuse_while_writing(connection, conversation)
    parent_key = _parent_key(connection, conversation, question.parent_id)
    limits.check_num_messages(num_messages(connection, conversation) + 2)
    question_key = add_message(
        connection,
        conversation,
        question.question_id,
        parent_key,
        role=Role.USER,
        text=whole_characters(question.text),
        cut=cut_text(question.cut),
        created_s=now_s,
    )
    _add_answer(connection, conversation, question.answer_id, question_key, now_s)
    touch(connection, conversation, now_s, question.settings)
    return Asked(
        conversation["conversation_id"], question.question_id, question.answer_id, is_new=True
    )


def answer_again(
    connection: Connection,
    person: str,
    message_id: str,
    *,
    answer_id: str,
    settings: ChatSettings,
    cut: ContextCut | None,
    limits: ConversationLimits,
    now_s: float,
) -> Asked:
    """A new answer to this question, or to the question of this answer. Raises ChatError."""
    question = question_of(connection, message_row(connection, person, message_id))
    conversation = conversation_of_key(connection, question["conversation_key"])
    refuse_while_writing(connection, conversation)
    limits.check_num_messages(num_messages(connection, conversation) + 1)
    if cut is not None:
        connection.execute(
            update(MESSAGES)
            .where(MESSAGES.c.key == question["key"])
            .values(cut=cut_text(cut), revision=MESSAGES.c.revision + 1)
        )
    _add_answer(connection, conversation, answer_id, question["key"], now_s)
    touch(connection, conversation, now_s, settings)
    return Asked(conversation["conversation_id"], question["message_id"], answer_id, is_new=True)


def resume_answer(
    connection: Connection, person: str, message_id: str, settings: ChatSettings, now_s: float
) -> Asked:
    """The answer is being written once more, from where it ended. Raises ChatError."""
    answer = message_row(connection, person, message_id)
    if answer["role"] != Role.ASSISTANT:
        raise ConflictError("Only an answer can be continued.")
    question = question_of(connection, answer)
    conversation = conversation_of_key(connection, answer["conversation_key"])
    refuse_while_writing(connection, conversation)
    connection.execute(
        update(MESSAGES)
        .where(MESSAGES.c.key == answer["key"])
        .values(state=MessageState.WRITING, revision=MESSAGES.c.revision + 1)
    )
    tree = tree_of(connection, conversation)
    follow(connection, conversation["key"], tree.steps_to(answer["key"]))
    touch(connection, conversation, now_s, settings)
    return Asked(conversation["conversation_id"], question["message_id"], message_id, is_new=True)


def question_of(connection: Connection, message: RowMapping) -> RowMapping:
    """The message itself where it is a question. Raises ConflictError: there is none."""
    if message["role"] == Role.USER:
        return message
    query = select(MESSAGES).where(
        MESSAGES.c.key == message["parent_key"],
        MESSAGES.c.role == Role.USER,
        MESSAGES.c.deleted_s.is_(None),
    )
    question = connection.execute(query).mappings().one_or_none()
    if question is None:
        raise ConflictError("The question of this answer is not there any more: restore it first.")
    return question


def _add_answer(
    connection: Connection,
    conversation: RowMapping,
    answer_id: str,
    question_key: int,
    now_s: float,
) -> None:
    add_message(
        connection,
        conversation,
        answer_id,
        question_key,
        role=Role.ASSISTANT,
        text="",
        state=MessageState.WRITING,
        created_s=now_s,
    )


def _asked_before(connection: Connection, person: str, question_id: str) -> Asked | None:
    """Raises ChatError: the id is taken by something else."""
    columns = MESSAGES.c
    if connection.execute(select(columns.key).where(columns.message_id == question_id)).first():
        question = message_row(connection, person, question_id, may_be_deleted=True)
        conversation = conversation_of_key(connection, question["conversation_key"])
        query = (
            select(columns.message_id)
            .where(columns.parent_key == question["key"], columns.role == Role.ASSISTANT.value)
            .order_by(columns.key)
            .limit(1)
        )
        answer_id = connection.execute(query).scalar_one_or_none()
        if question["role"] != Role.USER or answer_id is None:
            raise ConflictError("This question's id is in use: reload the page and send it again.")
        return Asked(conversation["conversation_id"], question_id, answer_id, is_new=False)
    return None


def _conversation_for(
    connection: Connection,
    person: str,
    question: Question,
    limits: ConversationLimits,
    now_s: float,
) -> RowMapping:
    if question.conversation_id is not None:
        return conversation_row(connection, person, question.conversation_id)
    if isinstance(question.parent_id, str):
        raise NotFoundError(NO_MESSAGE)
    limits.check_num_conversations(num_conversations(connection, person) + 1)
    inserted = connection.execute(
        insert(CONVERSATIONS).values(
            conversation_id=secrets.token_urlsafe(16),
            person=person,
            title=first_words(question.text, MAX_AUTOMATIC_TITLE_CHARS),
            is_titled_by_person=False,
            settings=settings_text(question.settings),
            is_pinned=False,
            is_archived=False,
            created_s=now_s,
            updated_s=now_s,
        )
    )
    return conversation_of_key(connection, int(inserted.inserted_primary_key[0]))  # type: ignore[index]


def _parent_key(
    connection: Connection, conversation: RowMapping, parent_id: str | Unset | None
) -> int | None:
    if parent_id is None:
        return None
    if isinstance(parent_id, Unset):
        return tree_of(connection, conversation).end()
    query = select(MESSAGES.c.key).where(
        MESSAGES.c.message_id == parent_id, MESSAGES.c.conversation_key == conversation["key"]
    )
    key = connection.execute(query).scalar_one_or_none()
    if key is None:
        raise NotFoundError(NO_MESSAGE)
    return int(key)
