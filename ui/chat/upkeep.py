"""What happens by itself: pages hear of the engine's state, and what was deleted is erased."""

from __future__ import annotations

import asyncio
import logging

from ui.chat.conversation import ChatError
from ui.chat.forgetting import Forgetting
from ui.chat.storage.store import ConversationStore
from ui.chat.storage_threads import StorageThreads
from ui.chat.views import Views
from ui.chat.watchers import Watchers

_ENGINE_INTERVAL_S = 0.5
_PURGE_INTERVAL_S = 3600.0
_log = logging.getLogger(__name__)


class Upkeep:
    def __init__(
        self,
        views: Views,
        watchers: Watchers,
        store: ConversationStore,
        threads: StorageThreads,
        forgetting: Forgetting,
        *,
        engine_interval_s: float = _ENGINE_INTERVAL_S,
    ) -> None:
        self._views = views
        self._watchers = watchers
        self._store = store
        self._threads = threads
        self._forgetting = forgetting
        self._engine_interval_s = engine_interval_s
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._tell_of_engine()),
            asyncio.create_task(self._purge_now_and_then()),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _tell_of_engine(self) -> None:
        """One look for all pages."""
        told = self._views.engine()
        while True:
            await asyncio.sleep(self._engine_interval_s)
            now = self._views.engine()
            if now != told:
                told = now
                self._watchers.engine_changed()

    async def _purge_now_and_then(self) -> None:
        """Not in the writing thread: it makes many short writes, and answers get in between."""
        while True:
            try:
                await self._forgetting.due()
                await self._threads.scan(self._store.purge, self._store.now_s())
            except ChatError as error:
                _log.warning("What was deleted could not be erased: %s", error)
            await asyncio.sleep(_PURGE_INTERVAL_S)
