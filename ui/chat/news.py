"""What answers tell: open pages of changes, and the model that a conversation needs a title."""

from __future__ import annotations

import asyncio
import logging

from ui.chat.answer import Answer
from ui.chat.conversation import ChatError, MessageState
from ui.chat.counting import Asking
from ui.chat.storage.store import ConversationStore
from ui.chat.storage_threads import StorageThreads
from ui.chat.titles import Titles
from ui.chat.watchers import Watchers

_log = logging.getLogger(__name__)


class AnswerNews:
    """The AnswerListener of the chat page."""

    def __init__(
        self,
        watchers: Watchers,
        titles: Titles,
        store: ConversationStore,
        threads: StorageThreads,
    ) -> None:
        self._watchers = watchers
        self._titles = titles
        self._store = store
        self._threads = threads
        self._naming: set[asyncio.Task[None]] = set()

    def answer_changed(self, answer: Answer) -> None:
        if answer.conversation_id is not None:
            self._watchers.conversation_changed(answer.person, answer.conversation_id)

    def answer_grew(self, answer: Answer) -> None:
        if answer.conversation_id is not None:
            self._watchers.answer_grew(answer.person, answer.conversation_id)

    def is_here(self, person: str) -> bool:
        return self._watchers.is_here(person)

    def answer_ended(self, answer: Answer, state: MessageState) -> None:
        if state is MessageState.DONE and self._titles.can_be_written:
            task = asyncio.create_task(self._name(answer))
            self._naming.add(task)
            task.add_done_callback(self._naming.discard)

    async def close(self) -> None:
        for task in self._naming:
            task.cancel()
        if self._naming:
            await asyncio.wait(self._naming)

    async def _name(self, answer: Answer) -> None:
        """A title of the model's for a conversation that has its first answer now."""
        person, conversation_id = answer.person, answer.conversation_id
        assert conversation_id is not None
        try:
            path = await self._threads.read(self._store.path, person, answer.message_id)
            shown = await self._threads.read(
                self._store.conversation, person, conversation_id, limit=1
            )
            if not self._titles.are_wanted_for(path):
                return
            asking = Asking(person=person, path=path, settings=shown.settings)
            title = await self._titles.write(asking)
            if title is not None:
                await self._threads.write(
                    self._store.set_title, person, conversation_id, title, by_person=False
                )
                self._watchers.conversation_changed(person, conversation_id)
        except ChatError as error:  # it was deleted meanwhile, for example
            _log.info("A conversation got no title: %s", error)
        except Exception:
            _log.exception("A conversation got no title.")
