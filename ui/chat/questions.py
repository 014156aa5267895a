"""From what a person sends to an answer that runs: check, prepare, queue, store, write.

In this order, so that a refusal stores nothing and the text stays in the person's box.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from engine import ChatService, Transcript
from ui.chat.answer import Answer
from ui.chat.answers import Answers
from ui.chat.characters import whole_characters
from ui.chat.conversation import Asked, ChatError, Message, MessageState, NotFoundError, Role
from ui.chat.counting import Asking
from ui.chat.preparation import Preparation, Ready
from ui.chat.room import ContextUse, OnFull
from ui.chat.settings import ChatSettings
from ui.chat.storage.lookup import NO_MESSAGE
from ui.chat.storage.store import UNSET, ConversationStore, PathAbove, Unset
from ui.chat.storage_threads import StoppingError, StorageThreads


class Questions:
    """Asks, asks again and goes on. Every method raises ChatError or HearthError."""

    def __init__(
        self,
        service: ChatService,
        store: ConversationStore,
        threads: StorageThreads,
        answers: Answers,
        preparation: Preparation,
    ) -> None:
        self._service = service
        self._store = store
        self._threads = threads
        self._answers = answers
        self._preparation = preparation
        self._asking: dict[tuple[str, str], asyncio.Task[Asked]] = {}  # by question id
        self._tasks: set[asyncio.Task[Asked]] = set()

    async def ask(
        self,
        person: str,
        *,
        conversation_id: str | None,
        parent_id: str | Unset | None,
        question_id: str,
        text: str,
        settings: ChatSettings,
        on_full: OnFull | None,
    ) -> Asked:
        """Asked twice with one id, there is one answer, and both callers get it."""
        key = (person, question_id)
        task = self._asking.get(key)
        if task is None:
            asked = self._ask(
                person,
                conversation_id,
                parent_id,
                _question(question_id, text),
                settings,
                on_full,
            )
            task = self._asking[key] = self._task(asked)
            task.add_done_callback(lambda _: self._asking.pop(key))
        return await self._end_of(task)

    async def regenerate(
        self, person: str, message_id: str, settings: ChatSettings, on_full: OnFull | None
    ) -> Asked:
        """One more answer to the question of this answer, or to this question."""
        task = self._task(self._regenerate(person, message_id, settings, on_full))
        return await self._end_of(task)

    async def continue_answer(self, person: str, message_id: str, settings: ChatSettings) -> Asked:
        """More of an answer that was cut. One without a word is written from its beginning."""
        return await self._end_of(self._task(self._continue(person, message_id, settings)))

    async def count(
        self, person: str, conversation_id: str | None, text: str, settings: ChatSettings
    ) -> ContextUse:
        """What sending this would cost."""
        above = await self._path_above(person, conversation_id, UNSET)
        path = (*above.messages, _question("", text))
        asking = await self._asking_of(person, path, settings)
        return await self._preparation.count(asking)

    async def close(self) -> None:
        """Give up what has not become an answer yet."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _ask(
        self,
        person: str,
        conversation_id: str | None,
        parent_id: str | Unset | None,
        question: Message,
        settings: ChatSettings,
        on_full: OnFull | None,
    ) -> Asked:
        if not question.text.strip():
            raise ChatError("Write something first.")
        self._store.limits.check_text(question.text)
        store = partial(
            self._store.ask,
            person,
            conversation_id=conversation_id,
            question_id=question.message_id,
            text=question.text,
            settings=settings,
        )
        if await self._is_known(person, question.message_id):
            known = partial(store, parent_id=parent_id, answer_id=_new_id())
            return await self._threads.write(known)
        with self._reserve(person, conversation_id, _new_id()) as answer:
            above = await self._path_above(person, conversation_id, parent_id)
            path = (*above.messages, question)
            asking = await self._asking_of(person, path, settings, on_full)
            ready = await self._preparation.prepare(asking, answer)
            as_prepared = partial(
                store,
                parent_id=above.parent_id,  # whatever is shown meanwhile
                answer_id=answer.message_id,
                cut=ready.cut,
            )
            return await self._start(answer, ready, as_prepared)

    async def _regenerate(
        self, person: str, message_id: str, settings: ChatSettings, on_full: OnFull | None
    ) -> Asked:
        with await self._reserved(person, message_id, _new_id()) as answer:
            path = await self._threads.read(self._store.path, person, message_id)
            if path[-1].role is Role.ASSISTANT:
                path = path[:-1]
            if not path or path[-1].role is not Role.USER:
                raise ChatError(
                    "The question of this answer is not there any more: restore it first."
                )
            asking = await self._asking_of(person, path, settings, on_full)
            ready = await self._preparation.prepare(asking, answer)
            store = partial(
                self._store.answer_again,
                person,
                message_id,
                answer_id=answer.message_id,
                settings=settings,
                cut=ready.cut,
            )
            return await self._start(answer, ready, store)

    async def _continue(self, person: str, message_id: str, settings: ChatSettings) -> Asked:
        with await self._reserved(person, message_id, message_id) as answer:
            path = await self._threads.read(self._store.path, person, message_id)
            last = path[-1]
            if last.role is not Role.ASSISTANT:
                raise ChatError("Only an answer can be continued.")
            continues = bool(last.text)
            if continues:
                answer.go_on_from(last)
            asked_path = path if continues else path[:-1]
            asking = await self._asking_of(person, asked_path, settings, None, continues)
            ready = await self._preparation.prepare(asking, answer)
            store = partial(self._store.resume_answer, person, message_id, settings)
            return await self._start(answer, ready, store)

    async def _reserved(
        self, person: str, message_id: str, answer_id: str
    ) -> AbstractContextManager[Answer]:
        """An answer in the conversation of this message."""
        conversation_id = await self._threads.read(
            self._store.conversation_id_of, person, message_id
        )
        return self._reserve(person, conversation_id, answer_id)

    @contextmanager
    def _reserve(
        self, person: str, conversation_id: str | None, answer_id: str
    ) -> Iterator[Answer]:
        """It keeps the conversation to itself, and frees it where the block fails."""
        answer = self._answers.begin(person, conversation_id, answer_id)
        try:
            yield answer
        except BaseException:
            self._answers.discard(answer)
            raise

    async def _start(self, answer: Answer, ready: Ready, store: Callable[[], Asked]) -> Asked:
        stream = self._service.submit(ready.prepared, max_tokens=ready.max_tokens)
        try:
            asked = await self._threads.write(store)
        except NotFoundError:  # the conversation was deleted meanwhile: nothing of it may stay
            stream.close()
            self._service.forget([ready.prepared.request.conversation])
            raise
        except BaseException:
            stream.close()
            raise
        if asked.is_new:
            self._answers.run(answer, asked.conversation_id, stream)
        else:
            stream.close()
            self._answers.discard(answer)
        return asked

    async def _end_of(self, task: asyncio.Task[Asked]) -> Asked:
        """A caller who goes away changes nothing: what is stored gets its answer."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `close`, not by the caller's going
                raise StoppingError from None
            raise

    def _task(self, work: Coroutine[Any, Any, Asked]) -> asyncio.Task[Asked]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Asked]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # also where nobody waits for it any more

    async def _is_known(self, person: str, question_id: str) -> bool:
        try:
            await self._threads.read(self._store.conversation_id_of, person, question_id)
        except NotFoundError:
            return False
        return True

    async def _path_above(
        self, person: str, conversation_id: str | None, parent_id: str | Unset | None
    ) -> PathAbove:
        """Raises NotFoundError."""
        if conversation_id is not None:
            return await self._threads.read(
                self._store.path_above, person, conversation_id, parent_id
            )
        if isinstance(parent_id, str):
            raise NotFoundError(NO_MESSAGE)
        return PathAbove((), None)

    async def _asking_of(
        self,
        person: str,
        path: tuple[Message, ...],
        settings: ChatSettings,
        on_full: OnFull | None = None,
        continues: bool = False,
    ) -> Asking:
        answer_ids = [message.message_id for message in path if message.role is Role.ASSISTANT]
        kept = await self._threads.read(self._store.transcripts, person, answer_ids)
        return Asking(
            person=person,
            path=path,
            settings=settings,
            on_full=on_full,
            continues=continues,
            transcripts=tuple(Transcript(*transcript) for transcript in kept),
        )


def _question(question_id: str, text: str) -> Message:
    return Message(
        message_id=question_id,
        parent_id=None,
        role=Role.USER,
        text=whole_characters(text),
        state=MessageState.DONE,
    )


def _new_id() -> str:
    return secrets.token_urlsafe(16)
