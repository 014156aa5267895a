"""Prompts built to be counted: what sending a part of a conversation would cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine import ChatRequest, ChatService, ContextLengthError, Engine, PreparedChat, Transcript
from ui.chat.conversation import Message
from ui.chat.forgetting import engine_name_of_path
from ui.chat.prompt import SentPart, prompt_messages
from ui.chat.room import OnFull, context_size
from ui.chat.settings import ChatSettings

_CHARS_PER_TOKEN = 4  # for text that is too long to be encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What an answer is wanted to: the last message of `path`, or more of it."""

    person: str
    path: tuple[Message, ...]
    settings: ChatSettings
    on_full: OnFull | None = None
    continues: bool = False
    transcripts: tuple[Transcript, ...] = ()


class Counted(NamedTuple):
    num_tokens: int  # in about, where it is far more than any context holds
    prepared: PreparedChat | None  # None: so long that it was not built


class PromptCounter:
    def __init__(self, engine: Engine, service: ChatService) -> None:
        self._engine = engine
        self._service = service

    def context(self) -> int:
        """Tokens that a prompt and its reply may have. Raises EngineNotReadyError."""
        return context_size(self._engine.model_info())

    async def count(self, asking: Asking, sent: SentPart) -> Counted:
        """The prompt with this part of the path. Raises HearthError: the messages are refused."""
        request = ChatRequest(
            messages=prompt_messages(sent, asking.settings),
            sampling=asking.settings.sampling(),
            owner=asking.person,
            user=asking.person,
            conversation=engine_name_of_path(asking.person, asking.path),
            continue_final_message=asking.continues,
            known_transcripts=asking.transcripts,
        )
        try:
            prepared = await self._service.prepare(request)
        except ContextLengthError:
            num_chars = sum(len(message.content) for message in request.messages)
            return Counted(max(self.context() + 1, num_chars // _CHARS_PER_TOKEN), None)
        return Counted(prepared.num_tokens, prepared)
