"""What pages are shown of conversations, read from the database and from running answers."""

from __future__ import annotations

from engine import Engine, HearthError
from ui.chat.answers import Answers
from ui.chat.room import context_size
from ui.chat.storage.store import ConversationStore
from ui.chat.storage_threads import StorageThreads
from ui.chat.wire import JsonObject, conversation_object, entry_object

NUM_SHOWN_MESSAGES = 40


class Views:
    """Every method raises NotFoundError for what is another person's, too."""

    def __init__(
        self, engine: Engine, store: ConversationStore, threads: StorageThreads, answers: Answers
    ) -> None:
        self._engine = engine
        self._store = store
        self._threads = threads
        self._answers = answers

    async def entries(self, person: str, *, archived: bool = False) -> list[JsonObject]:
        found = await self._threads.read(self._store.entries, person, archived)
        return [
            entry_object(entry, is_answering=self._is_answering(person, entry.conversation_id))
            for entry in found
        ]

    async def entry(self, person: str, conversation_id: str) -> JsonObject:
        entry = await self._threads.read(self._store.entry, person, conversation_id)
        return entry_object(entry, is_answering=self._is_answering(person, conversation_id))

    async def conversation(
        self,
        person: str,
        conversation_id: str,
        *,
        before: str | None = None,
        limit: int = NUM_SHOWN_MESSAGES,
    ) -> JsonObject:
        found = await self._threads.read(
            self._store.conversation, person, conversation_id, before=before, limit=limit
        )
        answer = self._answers.find(person, conversation_id)
        return conversation_object(found, max_context=self.max_context(), answer=answer)

    def engine(self) -> JsonObject:
        """The engine event."""
        status = self._engine.status()
        try:
            info = self._engine.model_info()
        except HearthError:
            model = None
        else:
            model = {"name": info.name, "max_model_len": info.max_model_len}
        return {
            "type": "engine",
            "state": status.state.value,
            "message": status.message,
            "num_restarts": status.num_restarts,
            "model": model,
        }

    def max_context(self) -> int | None:
        try:
            return context_size(self._engine.model_info())
        except HearthError:
            return None

    def _is_answering(self, person: str, conversation_id: str) -> bool:
        return self._answers.find(person, conversation_id) is not None
