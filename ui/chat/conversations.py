"""What people do with their conversations: the one thing that the chat page's routes call.

Every method takes the person first, returns what docs/protocol.md says as plain JSON objects, and
tells the open pages what has changed. Used on one event loop; the database works in threads.

Every method raises ChatError (its `code` names the kind: not_found, conflict, limit, context_full,
storage, stopped, refused), and RequestError, EngineNotReadyError or EngineDeadError of the engine.
Nothing is stored where something is raised.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from engine import ChatService, Engine, HearthError
from ui.chat.answers import Answers
from ui.chat.config import ChatConfig
from ui.chat.forgetting import Forgetting
from ui.chat.news import AnswerNews
from ui.chat.preparation import Preparation
from ui.chat.questions import Questions
from ui.chat.room import OnFull
from ui.chat.settings import ChatSettings
from ui.chat.storage.store import UNSET, ConversationStore, Unset
from ui.chat.storage_threads import StorageThreads
from ui.chat.titles import Titles
from ui.chat.upkeep import Upkeep
from ui.chat.views import NUM_SHOWN_MESSAGES, Views
from ui.chat.watch import Watch
from ui.chat.watchers import Watchers
from ui.chat.wire import JsonObject, asked_object, hit_object, message_object, settings_object


class Conversations:
    def __init__(
        self,
        engine: Engine,
        chat_service: ChatService,
        store: ConversationStore,
        *,
        config: ChatConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._store = store
        self._clock = clock
        self._threads = StorageThreads()
        self._watchers = Watchers()
        titles = Titles(engine, chat_service, config.auto_titles)
        self._news = AnswerNews(self._watchers, titles, store, self._threads)
        self._answers = Answers(
            engine, store, self._threads, self._news, grace_s=config.answer_grace_s, clock=clock
        )
        self._views = Views(engine, store, self._threads, self._answers)
        preparation = Preparation(engine, chat_service)
        self._questions = Questions(chat_service, store, self._threads, self._answers, preparation)
        self._forgetting = Forgetting(engine, store, self._threads)
        self._upkeep = Upkeep(self._views, self._watchers, store, self._threads, self._forgetting)

    async def start(self) -> None:
        """Before the first call: answers that a server's end cut off are marked as such."""
        await self._threads.write(self._store.interrupt_unfinished)
        self._answers.start()
        self._upkeep.start()

    async def close(self) -> None:
        """Keep what was written of every answer, as interrupted, and end all watches."""
        await self._upkeep.close()
        await self._questions.close()
        await self._news.close()
        await self._answers.close()
        self._watchers.close()
        await self._threads.close()

    def open_watch(self, person: str) -> Watch:
        """News for one open page: `watch.show(conversation_id or None)`, `async for event in watch`
        (protocol dicts: engine, entries, entry, entry_gone, conversation, answer, gone), and
        `watch.close()` when the page has gone."""
        watch = Watch(
            person,
            self._views,
            self._answers,
            clock=self._clock,
            on_close=self._watchers.remove,
        )
        self._watchers.add(watch)
        return watch

    # The list

    async def entries(self, person: str, *, archived: bool = False) -> JsonObject:
        return {"entries": await self._views.entries(person, archived=archived)}

    async def search(self, person: str, words: str) -> JsonObject:
        hits = await self._threads.scan(self._store.search, person, words)
        return {"hits": [hit_object(hit) for hit in hits]}

    async def patch(
        self,
        person: str,
        conversation_id: str,
        *,
        title: str | None = None,
        is_pinned: bool | None = None,
        is_archived: bool | None = None,
    ) -> JsonObject:
        """None leaves a thing as it is."""
        if title is not None:
            await self._threads.write(self._store.rename, person, conversation_id, title)
        if is_pinned is not None:
            await self._threads.write(self._store.set_pinned, person, conversation_id, is_pinned)
        if is_archived is not None:
            await self._threads.write(
                self._store.set_archived, person, conversation_id, is_archived
            )
        self._watchers.conversation_changed(person, conversation_id)
        return await self._views.entry(person, conversation_id)

    async def delete(self, person: str, conversation_id: str) -> JsonObject:
        """Its answer is stopped, and the engine keeps nothing of it."""
        await self._threads.write(self._store.delete_conversation, person, conversation_id)
        self._answers.stop(person, conversation_id)
        self._watchers.conversation_changed(person, conversation_id)
        await self._forgetting.conversation(person, conversation_id)
        return {}

    async def restore(self, person: str, conversation_id: str) -> JsonObject:
        await self._threads.write(self._store.restore_conversation, person, conversation_id)
        self._watchers.conversation_changed(person, conversation_id)
        return await self._views.entry(person, conversation_id)

    def entries_changed(self, person: str) -> None:
        """After an import: open pages get the whole list anew."""
        self._watchers.entries_changed(person)

    # One conversation

    async def conversation(
        self,
        person: str,
        conversation_id: str,
        *,
        before: str | None = None,
        limit: int = NUM_SHOWN_MESSAGES,
    ) -> JsonObject:
        return await self._views.conversation(person, conversation_id, before=before, limit=limit)

    async def edit(self, person: str, message_id: str, text: str) -> JsonObject:
        """A new variant of an answer, with a person's text."""
        conversation_id = await self._threads.read(
            self._store.conversation_id_of, person, message_id
        )
        message = await self._threads.write(
            self._store.edit_answer, person, message_id, text, secrets.token_urlsafe(16)
        )
        self._watchers.conversation_changed(person, conversation_id)
        return message_object(message)

    async def select(self, person: str, message_id: str) -> JsonObject:
        return await self._change_tree(self._store.select, person, message_id)

    async def delete_message(self, person: str, message_id: str) -> JsonObject:
        return await self._change_tree(self._store.delete_message, person, message_id)

    async def restore_message(self, person: str, message_id: str) -> JsonObject:
        return await self._change_tree(self._store.restore_message, person, message_id)

    async def _change_tree(
        self, change: Callable[[str, str], str], person: str, message_id: str
    ) -> JsonObject:
        conversation_id = await self._threads.write(change, person, message_id)
        self._watchers.conversation_changed(person, conversation_id)
        return {}

    # Answers

    async def ask(
        self,
        person: str,
        *,
        conversation_id: str | None,
        question_id: str,
        text: str,
        settings: ChatSettings,
        parent_id: str | Unset | None = UNSET,
        on_full: OnFull | None = None,
    ) -> JsonObject:
        asked = await self._questions.ask(
            person,
            conversation_id=conversation_id,
            parent_id=parent_id,
            question_id=question_id,
            text=text,
            settings=settings,
            on_full=on_full,
        )
        return asked_object(asked)

    async def regenerate(
        self, person: str, message_id: str, *, settings: ChatSettings, on_full: OnFull | None = None
    ) -> JsonObject:
        return asked_object(await self._questions.regenerate(person, message_id, settings, on_full))

    async def continue_answer(
        self, person: str, message_id: str, *, settings: ChatSettings
    ) -> JsonObject:
        return asked_object(await self._questions.continue_answer(person, message_id, settings))

    async def stop(self, person: str, conversation_id: str) -> JsonObject:
        self._answers.stop(person, conversation_id)
        return {}

    # Settings

    async def count(
        self, person: str, *, conversation_id: str | None, text: str, settings: ChatSettings
    ) -> JsonObject:
        """What sending this text would cost, and what there is room for, in tokens."""
        use = await self._questions.count(person, conversation_id, text, settings)
        return use._asdict()

    async def defaults(self) -> JsonObject:
        try:
            recommended = self._engine.model_info().generation_defaults
        except HearthError:
            recommended = {}
        settings = ChatSettings().with_defaults_of(recommended)
        return {"settings": settings_object(settings)}

    async def presets(self, person: str) -> JsonObject:
        found = await self._threads.read(self._store.presets, person)
        presets = [
            {"name": name, "settings": settings_object(settings)} for name, settings in found
        ]
        return {"presets": presets}

    async def save_preset(self, person: str, name: str, settings: ChatSettings) -> JsonObject:
        await self._threads.write(self._store.save_preset, person, name, settings)
        return await self.presets(person)

    async def delete_preset(self, person: str, name: str) -> JsonObject:
        await self._threads.write(self._store.delete_preset, person, name)
        return await self.presets(person)
