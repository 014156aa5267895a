"""Summaries of what a conversation has no room for any more, written by the model itself."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from engine import ChatService, FinishReason, PreparedChat, SamplingParams
from ui.chat.answer import Answer
from ui.chat.conversation import ChatError, Message, Role
from ui.chat.counting import Asking, Counted, PromptCounter
from ui.chat.prompt import SentPart
from ui.chat.room import cut_points, first_cut_within, max_summary_tokens

_INSTRUCTION = Message(
    message_id="",
    parent_id=None,
    role=Role.USER,
    text="Summarise our conversation up to here in a few sentences. Keep names, numbers, decisions "
    "and open questions. Write the summary alone.",
)
_PARTIAL = "({} older messages are not part of this summary.) {}"
_STOPPED = "Stopped: the message was not sent."
_WITHOUT = "The oldest turns could not be summarised: {}. Leave them out instead."


class StoppedError(ChatError):
    """Its person ended it before it began: nothing is stored."""

    code = "stopped"


class NoSummaryError(Exception):
    """The message says why, and what else can be done."""


class _SummaryPrompt(NamedTuple):
    prepared: PreparedChat
    num_left_out: int  # messages that have no room even in this


class Summaries:
    def __init__(self, service: ChatService, counter: PromptCounter) -> None:
        self._service = service
        self._counter = counter

    async def write(self, asking: Asking, left_out: SentPart, answer: Answer) -> str:
        """Of `left_out` and its own earlier summary, where there is one.

        Raises:
            NoSummaryError: the model wrote none, or not even a part of it fits.
            StoppedError: the answer was stopped meanwhile.
            HearthError: the engine refuses.
        """
        answer.is_summarising = True
        try:
            prompt = await self._prompt(asking, left_out)
            _check_not_stopped(answer)
            text = await self._written(prompt.prepared, answer)
        finally:
            answer.is_summarising = False
        return _PARTIAL.format(prompt.num_left_out, text) if prompt.num_left_out else text

    async def _prompt(self, asking: Asking, left_out: SentPart) -> _SummaryPrompt:
        """It begins as the conversation does, whose KV is there; oldest turns go if they must."""
        context = self._counter.context()
        counted: dict[int, Counted] = {}
        max_tokens = max_summary_tokens(context)

        async def count(index: int) -> int:
            part = left_out._replace(messages=(*left_out.messages[index:], _INSTRUCTION))
            counted[index] = await self._counter.count(asking, part)
            return counted[index].num_tokens

        points = [0, *cut_points(left_out.messages)]
        first = await first_cut_within(points, context - max_tokens, count)
        prepared = None if first is None else counted[first].prepared
        if first is None or prepared is None:
            raise NoSummaryError(_WITHOUT.format("each of them is too long for the model"))
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0)
        request = replace(prepared.request, sampling=sampling)
        return _SummaryPrompt(prepared._replace(request=request), first)

    async def _written(self, prepared: PreparedChat, answer: Answer) -> str:
        stream = self._service.submit(prepared)
        answer.attach(stream)
        parts: list[str] = []
        last = None
        try:
            async for output in stream:
                parts.append(output.text)
                last = output
        finally:
            stream.close()
            answer.detach()
        _check_not_stopped(answer)
        text = "".join(parts).strip()
        is_whole = last is not None and last.finish_reason in _GOOD_ENDINGS
        if not is_whole or not text:
            reason = last.error if last is not None and last.error else "the model wrote nothing"
            raise NoSummaryError(_WITHOUT.format(reason.rstrip(".")))
        return text


_GOOD_ENDINGS = {FinishReason.STOP, FinishReason.LENGTH}


def _check_not_stopped(answer: Answer) -> None:
    if answer.is_stopping:
        raise StoppedError(_STOPPED)
