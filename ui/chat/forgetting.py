"""What the engine keeps of conversations, and that it goes with them.

The engine knows a request by the first message of its path. A conversation can have several of
those, by its branches and as messages are deleted, so all of its messages are named to be sure.
"""

from __future__ import annotations

import logging

from engine import Engine
from ui.chat.conversation import ChatError, Message
from ui.chat.storage.store import ConversationStore
from ui.chat.storage_threads import StorageThreads

_log = logging.getLogger(__name__)


def engine_name(person: str, message_id: str) -> str:
    """Under which the engine keeps what begins with this message."""
    return f"{person}/{message_id}"


def engine_name_of_path(person: str, path: tuple[Message, ...]) -> str:
    return engine_name(person, path[0].message_id)


class Forgetting:
    def __init__(self, engine: Engine, store: ConversationStore, threads: StorageThreads) -> None:
        self._engine = engine
        self._store = store
        self._threads = threads

    async def conversation(self, person: str, conversation_id: str) -> None:
        """Deleted or not. Its running requests end before. Never raises: `due` comes later."""
        try:
            message_ids = await self._threads.read(self._store.message_ids, person, conversation_id)
        except ChatError as error:
            _log.warning("What the engine keeps of a conversation stays for now: %s", error)
            return
        self._engine.forget([engine_name(person, message_id) for message_id in message_ids])

    async def due(self) -> None:
        """What is about to be erased for good: a deletion may have missed an engine's end."""
        due = await self._threads.scan(self._store.due_to_be_erased, self._store.now_s())
        if due:
            self._engine.forget([engine_name(item.person, item.message_id) for item in due])
