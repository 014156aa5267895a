"""Titles of conversations, written by the model after its first answer."""

from __future__ import annotations

import logging
from dataclasses import replace

from engine import ChatService, Engine, FinishReason, HearthError, SamplingParams
from ui.chat.conversation import Message, Role
from ui.chat.counting import Asking, PromptCounter
from ui.chat.prompt import sent_part
from ui.chat.room import context_size

_MIN_PARAMETERS = 1_000_000_000  # smaller models name worse than the first words do
_MAX_TITLE_TOKENS = 24
_MAX_TITLE_CHARS = 60
_QUOTES = "\"'“”‘’„«»「」『』`*"
_INSTRUCTION = Message(
    message_id="",
    parent_id=None,
    role=Role.USER,
    text="Write a title of at most six words for this conversation, in its own language. Write the "
    "title alone.",
)
_log = logging.getLogger(__name__)


class Titles:
    """`mode`: auto, model or first-words, see ChatConfig."""

    def __init__(self, engine: Engine, service: ChatService, mode: str) -> None:
        self._engine = engine
        self._service = service
        self._mode = mode
        self._counter = PromptCounter(engine, service)

    @property
    def can_be_written(self) -> bool:
        """Whether the model shall name conversations, and is large enough to do it well."""
        if self._mode != "auto":
            return self._mode == "model"
        try:
            return self._engine.model_info().num_parameters >= _MIN_PARAMETERS
        except HearthError:
            return False

    def are_wanted_for(self, path: tuple[Message, ...]) -> bool:
        """Whether a conversation is named after this: its first question and answer."""
        is_first = [message.role for message in path] == [Role.USER, Role.ASSISTANT]
        return is_first and self.can_be_written

    async def write(self, asking: Asking) -> str | None:
        """A title for the path, whose KV is still there. None: no good one came of it."""
        try:
            return await self._write(asking)
        except HearthError as error:  # a busy queue, for example: the first words do
            _log.info("A title was not written: %s", error)
            return None

    async def _write(self, asking: Asking) -> str | None:
        sent = sent_part((*asking.path, _INSTRUCTION))
        used, prepared = await self._counter.count(asking, sent)
        if prepared is None or used + _MAX_TITLE_TOKENS > context_size(self._engine.model_info()):
            return None
        sampling = SamplingParams(max_tokens=_MAX_TITLE_TOKENS, temperature=0.0)
        request = replace(prepared.request, sampling=sampling)
        stream = self._service.submit(prepared._replace(request=request))
        parts: list[str] = []
        finish_reason = None
        async for output in stream:
            parts.append(output.text)
            finish_reason = output.finish_reason
        return checked_title("".join(parts)) if finish_reason is FinishReason.STOP else None


def checked_title(text: str) -> str | None:
    """What the model wrote, if it is a title: one short line. Quotes around it are taken off."""
    title = text.strip().strip(_QUOTES).strip().removesuffix(".").strip()
    is_title = 0 < len(title) <= _MAX_TITLE_CHARS and title.isprintable() and "<" not in title
    return title if is_title and not set(title) <= set(_QUOTES) else None
