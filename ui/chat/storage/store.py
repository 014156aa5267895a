"""Everything people wrote and were answered, kept in the database.

Every method is one transaction and may be called from any thread; it blocks while the disk works.
`person` is who asks: what is another's does not exist for them (NotFoundError).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import select

from ui.chat.conversation import (
    Asked,
    ContextCut,
    Conversation,
    ConversationEntry,
    Message,
    MessageState,
    NotFoundError,
    ReplyFacts,
    SearchHit,
)
from ui.chat.settings import ChatSettings
from ui.chat.storage import answering, asking, branches, erasure, keeping
from ui.chat.storage.answering import TextUpdate, Transcript
from ui.chat.storage.asking import UNSET, PathAbove, Question, Unset
from ui.chat.storage.changes import num_conversations
from ui.chat.storage.database import Database
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.lookup import (
    NO_MESSAGE,
    conversation_from,
    conversation_of_key,
    conversation_row,
    entries_query,
    entry_from,
    message_row,
    messages_of,
    tree_of,
)
from ui.chat.storage.search import search
from ui.chat.storage.tables import CONVERSATIONS, MESSAGES
from ui.chat.storage.whole import Added, WholeConversation, add_whole, whole_conversation

__all__ = [
    "UNSET",
    "ConversationLimits",
    "ConversationStore",
    "PathAbove",
    "TextUpdate",
    "Unset",
]


class ConversationStore:
    """`clock` gives the wall clock's seconds.

    Raises, from every method: ChatError, where what is asked for cannot be; DBAPIError or
    DatabaseClosedError, where the database fails.
    """

    def __init__(
        self,
        database: Database,
        limits: ConversationLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._limits = limits or ConversationLimits()
        self._clock = clock

    @property
    def database(self) -> Database:
        return self._database

    @property
    def limits(self) -> ConversationLimits:
        return self._limits

    def now_s(self) -> float:
        return self._clock()

    # Reading

    def entries(
        self, person: str, archived: bool = False, limit: int = 500
    ) -> tuple[ConversationEntry, ...]:
        """Pinned ones first, then the newest."""
        query = entries_query(person).where(CONVERSATIONS.c.is_archived.is_(archived))
        with self._database.reading() as connection:
            rows = connection.execute(query.limit(limit)).mappings()
            return tuple(entry_from(row) for row in rows)

    def entry(self, person: str, conversation_id: str) -> ConversationEntry:
        with self._database.reading() as connection:
            return entry_from(conversation_row(connection, person, conversation_id))

    def conversation(
        self,
        person: str,
        conversation_id: str,
        *,
        before: str | None = None,
        limit: int | None = None,
    ) -> Conversation:
        """The last `limit` messages of the path, or of what comes before the message `before`."""
        with self._database.reading() as connection:
            row = conversation_row(connection, person, conversation_id)
            tree = tree_of(connection, row)
            path = tree.shown_path()
            if before is not None:
                ids = [tree.message_id(key) for key in path]
                if before not in ids:
                    raise NotFoundError(NO_MESSAGE)
                path = path[: ids.index(before)]
            start = 0 if limit is None else max(0, len(path) - limit)
            return conversation_from(row, messages_of(connection, tree, path[start:]), start)

    def message(self, person: str, message_id: str) -> Message:
        with self._database.reading() as connection:
            row = message_row(connection, person, message_id)
            tree = tree_of(connection, conversation_of_key(connection, row["conversation_key"]))
            return messages_of(connection, tree, [row["key"]])[0]

    def conversation_id_of(self, person: str, message_id: str) -> str:
        with self._database.reading() as connection:
            row = message_row(connection, person, message_id, may_be_deleted=True)
            conversation = conversation_of_key(connection, row["conversation_key"])
            return str(conversation["conversation_id"])

    def path(self, person: str, message_id: str) -> tuple[Message, ...]:
        """From the first message to this one, deleted ones left out."""
        with self._database.reading() as connection:
            row = message_row(connection, person, message_id)
            tree = tree_of(connection, conversation_of_key(connection, row["conversation_key"]))
            shown = [key for key in tree.line_to(row["key"]) if not tree.is_deleted(key)]
            return messages_of(connection, tree, shown)

    def path_above(
        self, person: str, conversation_id: str, parent_id: str | Unset | None
    ) -> PathAbove:
        """What a question with this parent comes after; UNSET: one at the end of the path."""
        with self._database.reading() as connection:
            return asking.path_above(connection, person, conversation_id, parent_id)

    def search(self, person: str, words: str, limit: int = 50) -> tuple[SearchHit, ...]:
        """Titles first, then the newest messages."""
        with self._database.reading() as connection:
            return search(connection, person, words, limit, self._limits)

    # Questions and answers

    def ask(
        self,
        person: str,
        *,
        conversation_id: str | None,
        parent_id: str | Unset | None = UNSET,
        question_id: str,
        answer_id: str,
        text: str,
        settings: ChatSettings,
        cut: ContextCut | None = None,
    ) -> Asked:
        """Store a question and the empty answer to it, in a new conversation where None is given.

        The same `question_id` again changes nothing and gives what was asked the first time.
        """
        question = Question(conversation_id, parent_id, question_id, answer_id, text, settings, cut)
        with self._database.writing() as connection:
            self._limits.check_database_bytes(self._database.size_bytes(connection))
            return asking.ask(connection, person, question, self._limits, self._clock())

    def answer_again(
        self,
        person: str,
        message_id: str,
        *,
        answer_id: str,
        settings: ChatSettings,
        cut: ContextCut | None = None,
    ) -> Asked:
        """A new variant of an answer, or a new answer to a question. `cut` None: as it was."""
        with self._database.writing() as connection:
            self._limits.check_database_bytes(self._database.size_bytes(connection))
            return asking.answer_again(
                connection,
                person,
                message_id,
                answer_id=answer_id,
                settings=settings,
                cut=cut,
                limits=self._limits,
                now_s=self._clock(),
            )

    def resume_answer(self, person: str, message_id: str, settings: ChatSettings) -> Asked:
        """The answer, with the text it has, is being written again."""
        with self._database.writing() as connection:
            return asking.resume_answer(connection, person, message_id, settings, self._clock())

    def write_texts(self, updates: Sequence[TextUpdate]) -> None:
        """What running answers say by now, all in one transaction."""
        with self._database.writing() as connection:
            answering.write_texts(connection, updates)

    def finish_answer(
        self,
        message_id: str,
        *,
        text: str,
        state: MessageState,
        facts: ReplyFacts | None,
        transcript: Transcript | None = None,
    ) -> None:
        """Only the first end of an answer counts."""
        with self._database.writing() as connection:
            answering.finish_answer(
                connection,
                message_id,
                text=text,
                state=state,
                facts=facts,
                transcript=transcript,
                now_s=self._clock(),
            )

    def transcripts(
        self, person: str, message_ids: Sequence[str], limit: int = 4
    ) -> list[Transcript]:
        """(digest, token ids) of the newest of these messages, newest first."""
        with self._database.reading() as connection:
            return answering.transcripts(connection, person, message_ids, limit)

    def interrupt_unfinished(self) -> int:
        """At a server's start: answers that its end cut off. Gives their number."""
        with self._database.writing() as connection:
            return answering.interrupt_unfinished(connection)

    # The tree

    def edit_answer(self, person: str, message_id: str, text: str, new_id: str) -> Message:
        """A new variant with this text, on the path."""
        with self._database.writing() as connection:
            self._limits.check_database_bytes(self._database.size_bytes(connection))
            return branches.edit_answer(
                connection,
                person,
                message_id,
                text=text,
                new_id=new_id,
                limits=self._limits,
                now_s=self._clock(),
            )

    def select(self, person: str, message_id: str) -> str:
        """The path leads through this message from now on. Gives the conversation's id."""
        with self._database.writing() as connection:
            return branches.select_message(connection, person, message_id)

    def delete_message(self, person: str, message_id: str) -> str:
        """Hide one message; what is below it stays. Gives the conversation's id."""
        with self._database.writing() as connection:
            return branches.delete_message(connection, person, message_id, self._clock())

    def restore_message(self, person: str, message_id: str) -> str:
        """Show it again, and lead the path through it. Gives the conversation's id."""
        with self._database.writing() as connection:
            return branches.restore_message(connection, person, message_id)

    # Whole conversations

    def rename(self, person: str, conversation_id: str, title: str) -> ConversationEntry:
        return self.set_title(person, conversation_id, title, by_person=True)

    def set_title(
        self, person: str, conversation_id: str, title: str, by_person: bool
    ) -> ConversationEntry:
        """An automatic title never replaces one that a person gave."""
        with self._database.writing() as connection:
            return keeping.set_title(
                connection,
                person,
                conversation_id,
                title,
                by_person=by_person,
                limits=self._limits,
            )

    def set_pinned(self, person: str, conversation_id: str, is_pinned: bool) -> ConversationEntry:
        with self._database.writing() as connection:
            return keeping.change(connection, person, conversation_id, is_pinned=is_pinned)

    def set_archived(
        self, person: str, conversation_id: str, is_archived: bool
    ) -> ConversationEntry:
        with self._database.writing() as connection:
            return keeping.change(connection, person, conversation_id, is_archived=is_archived)

    def delete_conversation(self, person: str, conversation_id: str) -> None:
        """It can be restored for a day."""
        with self._database.writing() as connection:
            keeping.delete_conversation(connection, person, conversation_id, self._clock())

    def restore_conversation(self, person: str, conversation_id: str) -> ConversationEntry:
        with self._database.writing() as connection:
            return keeping.restore_conversation(
                connection, person, conversation_id, self._limits, self._clock()
            )

    def message_ids(self, person: str, conversation_id: str) -> list[str]:
        """All there are, in every branch, shown or not; of a deleted conversation too."""
        with self._database.reading() as connection:
            row = conversation_row(connection, person, conversation_id, may_be_deleted=True)
            query = select(MESSAGES.c.message_id).where(MESSAGES.c.conversation_key == row["key"])
            return list(connection.execute(query).scalars())

    def due_to_be_erased(self, now_s: float) -> list[erasure.DueMessage]:
        """What `purge` would erase."""
        return erasure.due_messages(self._database, now_s - keeping.RESTORABLE_S)

    def purge(self, now_s: float) -> int:
        """Erase what was deleted more than a day ago. Gives how many things that were.

        Not one transaction but many short ones, so that others can write in between.
        """
        return erasure.purge(self._database, now_s - keeping.RESTORABLE_S)

    # Conversations with all their branches

    def conversation_ids(self, person: str) -> tuple[str, ...]:
        """All of them, archived ones too; the newest first."""
        columns = CONVERSATIONS.c
        query = select(columns.conversation_id).where(
            columns.person == person, columns.deleted_s.is_(None)
        )
        with self._database.reading() as connection:
            newest_first = query.order_by(columns.updated_s.desc(), columns.key.desc())
            return tuple(connection.execute(newest_first).scalars())

    def whole_conversation(self, person: str, conversation_id: str) -> WholeConversation:
        with self._database.reading() as connection:
            return whole_conversation(connection, person, conversation_id)

    def add_whole(self, person: str, conversations: Sequence[WholeConversation]) -> Added:
        """All of these, or, where something is raised, none. What is known stays as it is."""
        with self._database.writing() as connection:
            self._limits.check_database_bytes(self._database.size_bytes(connection))
            added = add_whole(connection, person, conversations)
            self._limits.check_num_conversations(num_conversations(connection, person))
            return added

    # Presets

    def presets(self, person: str) -> tuple[tuple[str, ChatSettings], ...]:
        """By name."""
        with self._database.reading() as connection:
            return keeping.presets(connection, person)

    def save_preset(self, person: str, name: str, settings: ChatSettings) -> None:
        """Replaces the one of this name."""
        with self._database.writing() as connection:
            keeping.save_preset(connection, person, name, settings, self._limits)

    def delete_preset(self, person: str, name: str) -> None:
        with self._database.writing() as connection:
            keeping.delete_preset(connection, person, name)
