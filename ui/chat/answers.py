"""Answers in the making: jobs of the server, one in a conversation at a time.

A job goes on whether or not somebody looks, for a while; its text goes to the database as it grows.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from engine import ChatStream, Engine, HearthError
from ui.chat.answer import Answer, UnsavedEnd
from ui.chat.conversation import ChatError, ConflictError, MessageState
from ui.chat.endings import FAULT, Ending, ending_of, failed, interrupted
from ui.chat.storage.store import ConversationStore, TextUpdate
from ui.chat.storage_threads import StoppingError, StorageThreads

NOBODY_WATCHED = "Nobody was watching any more."
_NOT_SAVED = "The answer is not saved yet: the server's database cannot be written just now."
_FLUSH_INTERVAL_S = 0.5
_RETRY_INTERVALS_S = (0.2, 1.0, 5.0)  # the last one again and again
_CLOSE_LIMIT_S = 10.0
_log = logging.getLogger(__name__)


class AnswerListener(Protocol):
    """Who is told of answers, and who knows whether somebody looks."""

    def answer_changed(self, answer: Answer) -> None:
        """It has begun, ended, or goes on in another way; not: it has grown."""

    def answer_grew(self, answer: Answer) -> None: ...

    def answer_ended(self, answer: Answer, state: MessageState) -> None:
        """It is stored in its last state."""

    def is_here(self, person: str) -> bool: ...


class Answers:
    """Starts, finds and stops answers; puts what they say into the database."""

    def __init__(
        self,
        engine: Engine,
        store: ConversationStore,
        threads: StorageThreads,
        listener: AnswerListener,
        *,
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
        flush_interval_s: float = _FLUSH_INTERVAL_S,
        retry_intervals_s: tuple[float, ...] = _RETRY_INTERVALS_S,
    ) -> None:
        self._engine = engine
        self._store = store
        self._threads = threads
        self._listener = listener
        self._grace_s = grace_s
        self._clock = clock
        self._flush_interval_s = flush_interval_s
        self._retry_intervals_s = retry_intervals_s
        self._answers: dict[tuple[str, str], Answer] = {}
        self._tasks: dict[asyncio.Task[None], Answer] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        self._flushing = asyncio.create_task(self._flush_now_and_then())

    async def close(self) -> None:
        """End all answers as interrupted; what they have said is stored."""
        self._is_closing = True
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])
        for task, answer in self._tasks.items():
            if not answer.is_ended:
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_LIMIT_S)
            for task in late:
                _log.error("Answer %s was not stored in time.", self._tasks[task].message_id)

    def find(self, person: str, conversation_id: str) -> Answer | None:
        return self._answers.get((person, conversation_id))

    def begin(self, person: str, conversation_id: str | None, message_id: str) -> Answer:
        """Reserve the conversation for a new answer, which is being prepared from now on.

        Raises:
            ConflictError: one is being written there already.
            StoppingError: the server is on its way down.
        """
        if self._is_closing:
            raise StoppingError
        if conversation_id is not None:
            self.check_free(person, conversation_id)
        answer = Answer(
            person=person,
            conversation_id=conversation_id,
            message_id=message_id,
            abort=self._engine.abort,
            now_s=self._clock(),
        )
        if conversation_id is not None:
            self._answers[person, conversation_id] = answer
            self._listener.answer_changed(answer)
        return answer

    def check_free(self, person: str, conversation_id: str) -> None:
        """Raises ConflictError where an answer is being written."""
        answer = self.find(person, conversation_id)
        if answer is not None and answer.unsaved is not None:
            raise ConflictError(_NOT_SAVED)
        if answer is not None:
            raise ConflictError(
                "An answer is still being written here: wait for it, or stop it first."
            )

    def discard(self, answer: Answer) -> None:
        """It was refused, or its preparation failed: nothing of it is stored."""
        self._remove(answer)

    def run(self, answer: Answer, conversation_id: str, stream: ChatStream) -> None:
        """Write it, from now on without whoever asked. It is stored as being written."""
        answer.conversation_id = conversation_id
        self._answers[answer.person, conversation_id] = answer
        answer.attach(stream)
        task = asyncio.create_task(self._follow(answer, stream))
        self._tasks[task] = answer
        task.add_done_callback(self._end_task)
        self._listener.answer_changed(answer)

    def stop(self, person: str, conversation_id: str) -> None:
        answer = self.find(person, conversation_id)
        if answer is not None:
            answer.stop()
            self._listener.answer_changed(answer)

    async def flush(self) -> None:
        """Everything that running answers have said since the last time, in one transaction."""
        grown = [
            (answer, answer.num_parts)
            for answer in self._tasks.values()
            if answer.num_parts > answer.num_flushed_parts and not answer.is_ended
        ]
        if not grown:
            return
        updates = [TextUpdate(answer.message_id, answer.text) for answer, _ in grown]
        await self._threads.write(self._store.write_texts, updates)
        for answer, num_parts in grown:
            answer.num_flushed_parts = num_parts

    def end_unwatched(self) -> None:
        """Stop what nobody has watched for the time of grace."""
        now_s = self._clock()
        for answer in self._running():
            assert answer.conversation_id is not None
            if self._listener.is_here(answer.person):
                answer.last_watched_s = now_s
            elif now_s - answer.last_watched_s > self._grace_s and not answer.is_stopping:
                answer.stop(NOBODY_WATCHED)
                self._listener.answer_changed(answer)

    def _running(self) -> Iterable[Answer]:
        return [answer for answer in self._tasks.values() if not answer.is_ended]

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._flush_interval_s)
            self.end_unwatched()
            try:
                await self.flush()
            except ChatError as error:  # the text is kept here, and written the next time
                _log.warning("The text of running answers could not be stored: %s", error)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        answer = self._tasks.pop(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("Answer %s failed.", answer.message_id, exc_info=task.exception())

    async def _follow(self, answer: Answer, stream: ChatStream) -> None:
        try:
            ending = await self._read(answer, stream)
        except asyncio.CancelledError:
            ending = interrupted(answer)
        finally:
            stream.close()
        answer.is_ended = True
        is_stored = False
        try:
            is_stored = await self._finish(answer, ending)
        finally:
            self._remove(answer)
        if is_stored and not self._is_closing:
            self._listener.answer_ended(answer, ending.state)

    async def _read(self, answer: Answer, stream: ChatStream) -> Ending:
        try:
            async for output in stream:
                answer.add(output, self._clock())
                self._listener.answer_grew(answer)
        except HearthError as error:
            return failed(answer, str(error))
        except Exception:
            _log.exception("Request %s failed while its answer was read.", stream.request_id)
            return failed(answer, FAULT)
        return ending_of(answer, stream.transcript)

    async def _finish(self, answer: Answer, ending: Ending) -> bool:
        """Store the end; while the database fails, again and again. False: the server ends first.

        Answers that wait for it are few: where one cannot be stored, no other can begin.
        """
        for num_tries in itertools.count():
            try:
                await self._threads.write(
                    self._store.finish_answer,
                    answer.message_id,
                    text=answer.text,
                    state=ending.state,
                    facts=ending.facts,
                    transcript=ending.transcript,
                )
                return True
            except ChatError:
                last = len(self._retry_intervals_s) - 1
                if num_tries >= last and answer.unsaved is None:
                    _log.exception("Answer %s cannot be stored yet.", answer.message_id)
                    facts = replace(ending.facts, error=_NOT_SAVED)
                    answer.unsaved = UnsavedEnd(MessageState.FAILED, facts)
                    self._listener.answer_changed(answer)
                if self._is_closing and num_tries >= last:
                    break
                await asyncio.sleep(self._retry_intervals_s[min(num_tries, last)])
        _log.error("Answer %s could not be stored and is lost.", answer.message_id)
        return False

    def _remove(self, answer: Answer) -> None:
        if answer.conversation_id is None:
            return
        key = (answer.person, answer.conversation_id)
        if self._answers.get(key) is answer:
            del self._answers[key]
        self._listener.answer_changed(answer)
