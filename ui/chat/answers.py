"""Answers in the making: jobs of the server, found by person and chat, read by many tabs at once.

A job goes on whether or not somebody looks; it ends by itself or by `stop`. What it wrote is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from engine import (
    ChatMessage,
    ChatRequest,
    ChatService,
    ChatStream,
    ContextLengthError,
    Engine,
    FinishReason,
    HearthError,
    RequestOutput,
    RequestStatus,
    Usage,
)
from ui.chat.chats import (
    Chat,
    ChatError,
    ChatNotFoundError,
    ChatStore,
    Message,
    ReplyFacts,
    Role,
)

_log = logging.getLogger(__name__)
_WATCH_INTERVAL_S = 0.12
_INTERVALS_PER_HEARTBEAT = 4


class AnswerPhase(Enum):
    PREPARING = "preparing"
    QUEUED = "queued"
    READING = "reading"
    WRITING = "writing"
    STOPPING = "stopping"


class AnswerSnapshot(NamedTuple):
    """An answer at one moment. Numbers are None where the phase has none."""

    phase: AnswerPhase
    text: str = ""
    queue_position: int | None = None  # 1: next
    num_computed_tokens: int | None = None
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None
    tokens_per_s: float | None = None


class Answer:
    """One reply while it is made. Used on the event loop only."""

    def __init__(self, abort: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._abort = abort
        self._clock = clock
        self._stream: ChatStream | None = None
        self._parts: list[str] = []
        self._usage: Usage | None = None
        self._first_text_s: float | None = None
        self._is_stopping = False
        self._ended = asyncio.Event()

    def attach(self, stream: ChatStream) -> None:
        self._stream = stream
        if self._is_stopping:
            self._abort(stream.request_id)

    def stop(self) -> None:
        """End it early. The stream is read on to its last delta, so that nothing of it is lost."""
        self._is_stopping = True
        if self._stream is not None:
            self._abort(self._stream.request_id)

    def add(self, output: RequestOutput) -> None:
        if self._first_text_s is None and output.token_ids:
            self._first_text_s = self._clock()
        if output.text:
            self._parts.append(output.text)
        self._usage = output.usage or self._usage

    def end(self) -> None:
        self._ended.set()

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def snapshot(self) -> AnswerSnapshot:
        if self._is_stopping:
            return AnswerSnapshot(AnswerPhase.STOPPING, self.text)
        if self._stream is None:
            return AnswerSnapshot(AnswerPhase.PREPARING)
        if self._usage is not None and self._first_text_s is not None:
            return self._writing(self._usage.num_output_tokens, self._first_text_s)
        progress = self._stream.progress
        if progress.status is RequestStatus.WAITING:
            return AnswerSnapshot(AnswerPhase.QUEUED, queue_position=progress.queue_position)
        return AnswerSnapshot(
            AnswerPhase.READING,
            num_computed_tokens=progress.num_computed_tokens,
            num_prompt_tokens=progress.num_prompt_tokens,
        )

    def _writing(self, num_output_tokens: int, first_text_s: float) -> AnswerSnapshot:
        elapsed_s = self._clock() - first_text_s
        rate = (num_output_tokens - 1) / elapsed_s if elapsed_s > 0.5 else None
        return AnswerSnapshot(
            AnswerPhase.WRITING, self.text, num_output_tokens=num_output_tokens, tokens_per_s=rate
        )

    async def watch(self, interval_s: float = _WATCH_INTERVAL_S) -> AsyncIterator[AnswerSnapshot]:
        """Snapshots until the end: when something changed, and at least twice a second."""
        shown: AnswerSnapshot | None = None
        num_quiet = 0
        while not self._ended.is_set():
            snapshot = self.snapshot()
            num_quiet = num_quiet + 1 if snapshot == shown else 0
            if num_quiet % _INTERVALS_PER_HEARTBEAT == 0:
                shown = snapshot
                yield snapshot
            await self._wait_for_end(interval_s)

    async def _wait_for_end(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        except TimeoutError:
            return


class Answers:
    """Starts, finds and stops answers; puts each into the store when it has ended."""

    def __init__(
        self,
        engine: Engine,
        service: ChatService,
        store: ChatStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._service = service
        self._store = store
        self._clock = clock
        self._answers: dict[tuple[str, str], Answer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, person: str, chat_id: str) -> Answer | None:
        return self._answers.get((person, chat_id))

    async def start(self, person: str, chat: Chat) -> Answer:
        """Begin answering `chat`'s last question. The chat is kept once the engine has accepted it.

        Raises:
            ChatError: an answer is being written in this chat already, or it was deleted meanwhile.
            HearthError: the engine refuses; the chat is as it was.
        """
        key = (person, chat.chat_id)
        if key in self._answers:
            raise ChatError("An answer is still being written here. Wait for it, or stop it first.")
        answer = self._answers[key] = Answer(self._engine.abort, self._clock)
        was_kept = self._store.has(person, chat.chat_id)
        try:
            stream = await self._open(person, chat)
            if was_kept and not self._store.has(person, chat.chat_id):
                stream.close()
                raise ChatNotFoundError("This chat was deleted before its answer could begin.")
        except BaseException:
            self._remove(key, answer)
            raise
        self._store.save(person, chat)
        answer.attach(stream)
        task = asyncio.create_task(self._follow(key, answer, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return answer

    def stop(self, person: str, chat_id: str) -> None:
        answer = self.find(person, chat_id)
        if answer is not None:
            answer.stop()

    async def _open(self, person: str, chat: Chat) -> ChatStream:
        request = ChatRequest(
            messages=prompt_of(chat), sampling=chat.settings.sampling(), owner=person, user=person
        )
        try:
            return await self._service.open(request)
        except ContextLengthError:
            # The longest reply asked for does not fit: take what is left. A prompt that alone is
            # too long is refused again, with its numbers.
            sampling = replace(request.sampling, max_tokens=None)
            return await self._service.open(replace(request, sampling=sampling))

    async def _follow(self, key: tuple[str, str], answer: Answer, stream: ChatStream) -> None:
        person, chat_id = key
        try:
            facts = await self._read(answer, stream)
            self._store.add_reply(person, chat_id, Message(Role.ASSISTANT, answer.text, facts))
        except ChatError:
            _log.info("The chat of an answer was deleted while it was written.")
        finally:
            stream.close()
            self._remove(key, answer)

    async def _read(self, answer: Answer, stream: ChatStream) -> ReplyFacts:
        last: RequestOutput | None = None
        try:
            async for output in stream:
                answer.add(output)
                last = output
        except HearthError as error:
            return ReplyFacts(finish_reason=FinishReason.ERROR, error=str(error))
        except Exception:
            _log.exception("Request %s failed while its answer was read.", stream.request_id)
            return ReplyFacts(finish_reason=FinishReason.ERROR, error="the server's log says why.")
        return _facts_of(last)

    def _remove(self, key: tuple[str, str], answer: Answer) -> None:
        del self._answers[key]
        answer.end()


def prompt_of(chat: Chat) -> tuple[ChatMessage, ...]:
    """The conversation as the model gets it.

    A reply that never got a word is left out, and questions in a row become one: templates want
    the roles to alternate.
    """
    prompt: list[ChatMessage] = []
    if chat.settings.system_prompt.strip():
        prompt.append(ChatMessage("system", chat.settings.system_prompt))
    for message in chat.messages:
        if prompt and prompt[-1].role == message.role and message.text:
            prompt[-1] = ChatMessage(message.role, f"{prompt[-1].content}\n\n{message.text}")
        elif message.text:
            prompt.append(ChatMessage(message.role, message.text))
    return tuple(prompt)


def _facts_of(last: RequestOutput | None) -> ReplyFacts:
    if last is None:
        return ReplyFacts(finish_reason=FinishReason.ABORT)
    facts = ReplyFacts(finish_reason=last.finish_reason or FinishReason.ABORT, error=last.error)
    usage, timings = last.usage, last.timings
    if usage is not None:
        facts = replace(
            facts,
            num_prompt_tokens=usage.num_prompt_tokens,
            num_cached_tokens=usage.num_cached_tokens,
            num_output_tokens=usage.num_output_tokens,
        )
    if usage is not None and timings is not None:
        rate = None
        if timings.decode_s and usage.num_output_tokens > 1:
            rate = (usage.num_output_tokens - 1) / timings.decode_s
        facts = replace(facts, ttft_s=timings.ttft_s, tokens_per_s=rate)
    return facts
