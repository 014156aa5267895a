"""Making a question's prompt fit: as it is, or after leaving out what its person chose."""

from __future__ import annotations

from typing import NamedTuple

from engine import ChatService, Engine, PreparedChat
from ui.chat.answer import Answer
from ui.chat.conversation import ContextCut
from ui.chat.counting import Asking, PromptCounter
from ui.chat.prompt import SentPart, sent_part
from ui.chat.room import (
    ContextFullError,
    ContextUse,
    OnFull,
    cut_points,
    first_cut_within,
    max_prompt_tokens,
    max_summary_tokens,
    prompt_tokens_after_cut,
    reply_tokens,
)
from ui.chat.summaries import NoSummaryError, Summaries


class Ready(NamedTuple):
    prepared: PreparedChat
    max_tokens: int
    cut: ContextCut | None  # a new one, to be kept at the question


class _Fitted(NamedTuple):
    num_tokens: int
    ready: Ready | None  # None: there is no room


class Preparation:
    """Builds prompts for answers. Nothing is queued, except for summaries, and nothing stored."""

    def __init__(self, engine: Engine, service: ChatService) -> None:
        self._counter = PromptCounter(engine, service)
        self._summaries = Summaries(service, self._counter)

    async def prepare(self, asking: Asking, answer: Answer) -> Ready:
        """The prompt, and how long the reply may be.

        Raises:
            ContextFullError: it does not fit, and the person has not chosen what to leave out.
            StoppedError: it was stopped while a summary was written.
            HearthError: the engine refuses.
        """
        sent = sent_part(asking.path)
        used, ready = await self._fit(asking, sent)
        if ready is not None:
            return ready
        first_index = await self._chosen_cut(asking, sent, used)
        num_left_out = sent.num_left_out + first_index
        summary = ""
        if asking.on_full is OnFull.SUMMARISE:
            left_out = sent._replace(messages=sent.messages[:first_index])
            try:
                summary = await self._summaries.write(asking, left_out, answer)
            except NoSummaryError as error:
                raise ContextFullError(
                    used=used,
                    max_tokens=self._counter.context(),
                    choices=[OnFull.DROP],
                    num_left_out=num_left_out,
                    reason=str(error),
                ) from error
        kept = SentPart(sent.messages[first_index:], num_left_out, summary)
        used, ready = await self._fit(asking, kept)
        if ready is None:
            raise ContextFullError(used=used, max_tokens=self._counter.context())
        return ready._replace(cut=ContextCut(kept.messages[0].message_id, num_left_out, summary))

    async def count(self, asking: Asking) -> ContextUse:
        """Of the prompt as it would be sent."""
        used, _ = await self._counter.count(asking, sent_part(asking.path))
        return ContextUse(used, self._counter.context())

    async def _fit(self, asking: Asking, sent: SentPart) -> _Fitted:
        used, prepared = await self._counter.count(asking, sent)
        max_tokens = reply_tokens(used, asking.settings.max_tokens, self._counter.context())
        if prepared is None or max_tokens is None:
            return _Fitted(used, None)
        return _Fitted(used, Ready(prepared, max_tokens, None))

    async def _chosen_cut(self, asking: Asking, sent: SentPart, used: int) -> int:
        """Where the sent part begins after the cut that the person chose.

        Raises ContextFullError: see `prepare`.
        """
        context = self._counter.context()
        search = _CutSearch(self._counter, asking, sent)
        dropping = await search.first_index(0)
        if dropping is None:
            raise ContextFullError(used=used, max_tokens=context)
        if asking.on_full is OnFull.DROP:
            return dropping
        summarising = await search.first_index(max_summary_tokens(context))
        if asking.on_full is OnFull.SUMMARISE and summarising is not None:
            return summarising
        choices = [OnFull.DROP] if summarising is None else [OnFull.DROP, OnFull.SUMMARISE]
        raise ContextFullError(
            used=used,
            max_tokens=context,
            choices=choices,
            num_left_out=sent.num_left_out + dropping,
        )


class _CutSearch:
    """Finds where a cut may be; remembers what it has counted."""

    def __init__(self, counter: PromptCounter, asking: Asking, sent: SentPart) -> None:
        self._counter = counter
        self._asking = asking
        self._messages = sent.messages
        self._points = [] if asking.continues else cut_points(sent.messages)
        self._num_tokens: dict[int, int] = {}

    async def first_index(self, num_summary_tokens: int) -> int | None:
        """The first message that is still sent; None: the question alone is too long."""
        context = self._counter.context()
        max_tokens = self._asking.settings.max_tokens
        target = prompt_tokens_after_cut(max_tokens, context) - num_summary_tokens
        first = await first_cut_within(self._points, target, self._count)
        if first is not None or not self._points:
            return first
        limit = max_prompt_tokens(max_tokens, context) - num_summary_tokens
        is_room = await self._count(self._points[-1]) <= limit
        return self._points[-1] if is_room else None

    async def _count(self, index: int) -> int:
        if index not in self._num_tokens:
            sent = SentPart(self._messages[index:], 0, "")
            self._num_tokens[index] = (await self._counter.count(self._asking, sent)).num_tokens
        return self._num_tokens[index]
