"""News for one open page. What has changed is only marked; it is read when the page takes it.

So a page that reads slowly gets fewer and larger events, and costs no more memory than its marks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from ui.chat.answer import Answer, AnswerPhase, AnswerProgress
from ui.chat.answers import Answers
from ui.chat.conversation import ChatError, NotFoundError
from ui.chat.views import Views
from ui.chat.wire import JsonObject, is_writing

_ANSWER_INTERVAL_S = 0.125
_PROGRESS_INTERVAL_S = 0.5  # how often the place in the queue is looked at
_HEARTBEAT_S = 2.0
_RETRY_S = 1.0
_MAX_CHANGED_ENTRIES = 50  # more are sent as a whole list
_log = logging.getLogger(__name__)


class _Told:
    """What this page knows of the answer that it watches."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.num_parts: int | None = None  # None: nothing yet
        self.standing: AnswerProgress | None = None
        self.sent_s = 0.0
        self.looked_s = 0.0


class Watch:
    """Used on one event loop: one reader iterates, anyone marks."""

    def __init__(
        self,
        person: str,
        views: Views,
        answers: Answers,
        *,
        clock: Callable[[], float],
        on_close: Callable[[Watch], None],
        answer_interval_s: float = _ANSWER_INTERVAL_S,
        heartbeat_s: float = _HEARTBEAT_S,
    ) -> None:
        self.person = person
        self.shown: str | None = None  # the conversation that the page shows
        self._views = views
        self._answers = answers
        self._clock = clock
        self._on_close = on_close
        self._answer_interval_s = answer_interval_s
        self._heartbeat_s = heartbeat_s
        self._is_closed = False
        self._wake = asyncio.Event()
        self._is_engine_due = True
        self._are_entries_due = True
        self._changed_entries: dict[str, None] = {}  # in the order of changing
        self._is_conversation_due = False
        self._sent_revisions: dict[str, int] = {}
        self._told: _Told | None = None

    def show(self, conversation_id: str | None) -> None:
        """What the page shows from now on; it is sent as a whole."""
        self.shown = conversation_id
        self._sent_revisions = {}
        self._told = None
        self._is_conversation_due = conversation_id is not None
        self._wake.set()

    def close(self) -> None:
        """The page has gone, or the server goes: the iteration ends. Again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._wake.set()
            self._on_close(self)

    def engine_changed(self) -> None:
        self._is_engine_due = True
        self._wake.set()

    def entry_changed(self, conversation_id: str) -> None:
        if len(self._changed_entries) >= _MAX_CHANGED_ENTRIES:
            self.entries_changed()
        elif not self._are_entries_due:
            self._changed_entries[conversation_id] = None
            self._wake.set()

    def entries_changed(self) -> None:
        self._are_entries_due = True
        self._changed_entries = {}
        self._wake.set()

    def conversation_changed(self, conversation_id: str) -> None:
        if conversation_id == self.shown:
            self._is_conversation_due = True
            self._wake.set()

    def answer_grew(self, conversation_id: str) -> None:
        if conversation_id == self.shown:
            self._wake.set()

    async def __aiter__(self) -> AsyncIterator[JsonObject]:
        while not self._is_closed:
            self._wake.clear()
            try:
                event = await self._next_event()
            except ChatError as error:
                _log.warning("A page's news could not be read: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            if event is None:
                await self._wait()
            elif not self._is_closed:
                yield event

    async def _next_event(self) -> JsonObject | None:
        """A mark is taken away before reading: what changes meanwhile is read once more."""
        if self._is_engine_due:
            self._is_engine_due = False
            return self._views.engine()
        if self._are_entries_due:
            return await self._entries_event()
        if self._changed_entries:
            return await self._entry_event()
        if self._is_conversation_due and self.shown is not None:
            return await self._conversation_event(self.shown)
        return self._answer_event()

    async def _entries_event(self) -> JsonObject:
        self._are_entries_due = False
        self._changed_entries = {}
        try:
            return {"type": "entries", "entries": await self._views.entries(self.person)}
        except ChatError:
            self._are_entries_due = True
            raise

    async def _entry_event(self) -> JsonObject:
        conversation_id = next(iter(self._changed_entries))
        del self._changed_entries[conversation_id]
        try:
            entry = await self._views.entry(self.person, conversation_id)
        except NotFoundError:
            return {"type": "entry_gone", "conversation_id": conversation_id}
        except ChatError:
            self._changed_entries[conversation_id] = None
            raise
        return {"type": "entry", "entry": entry}

    async def _conversation_event(self, conversation_id: str) -> JsonObject | None:
        self._is_conversation_due = False
        try:
            conversation = await self._views.conversation(self.person, conversation_id)
        except NotFoundError:
            return {"type": "gone", "conversation_id": conversation_id}
        except ChatError:
            self._is_conversation_due = True
            raise
        if conversation_id != self.shown:
            return self._answer_event()  # the page has moved on while this was read
        self._leave_out_known_texts(conversation)
        if any(is_writing(message) for message in conversation["messages"]):
            self._told = None
        return {"type": "conversation", "conversation": conversation}

    def _leave_out_known_texts(self, conversation: JsonObject) -> None:
        messages = conversation["messages"]
        revisions = {message["message_id"]: message["revision"] for message in messages}
        for message in messages:
            if self._sent_revisions.get(message["message_id"]) == message["revision"]:
                message["text"] = None
        self._sent_revisions = revisions

    def _answer_event(self) -> JsonObject | None:
        told = self._watched_answer()
        now_s = self._clock()
        is_early = told is None or now_s < told.sent_s + self._answer_interval_s
        if told is None or (is_early and told.num_parts is not None):
            return None
        told.looked_s = now_s
        progress = told.answer.progress(now_s)
        # the estimates change all the time; they go along with what is news
        standing = progress._replace(tokens_per_s=None, expected_wait_s=None)
        is_news = told.num_parts != told.answer.num_parts or standing != told.standing
        if not is_news and now_s - told.sent_s < self._heartbeat_s:
            return None
        text = told.answer.text_after(told.num_parts or 0)
        is_whole = told.num_parts is None
        told.num_parts, told.standing, told.sent_s = told.answer.num_parts, standing, now_s
        return {
            "type": "answer",
            "conversation_id": self.shown,
            "message_id": told.answer.message_id,
            "is_whole": is_whole,
            "text": text,
            **progress._asdict(),
        }

    def _watched_answer(self) -> _Told | None:
        answer = None if self.shown is None else self._answers.find(self.person, self.shown)
        if answer is None or answer.is_ended:
            self._told = None
        elif self._told is None or self._told.answer is not answer:
            self._told = _Told(answer)
        return self._told

    def _pause_s(self) -> float | None:
        """How long to sleep unless woken. Text wakes; so what is shown of it costs no polling."""
        told = self._watched_answer()
        if told is None:
            return None
        if told.num_parts != told.answer.num_parts:
            due_s = told.sent_s + self._answer_interval_s
        elif told.standing is not None and told.standing.phase is AnswerPhase.WRITING:
            due_s = told.sent_s + self._heartbeat_s
        else:
            due_s = min(told.looked_s + _PROGRESS_INTERVAL_S, told.sent_s + self._heartbeat_s)
        return max(0.0, due_s - self._clock())

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._pause_s()):
                await self._wake.wait()
        except TimeoutError:
            return
