"""Checking a conversation and rendering it with the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import TemplateError

from engine.errors import InvalidParameterError
from engine.text.tokenizer import template_source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLES = ("system", "user", "assistant")


class ChatMessage(NamedTuple):
    role: str
    content: str


def checked_messages(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The messages to render: an empty system message is none.

    Raises:
        InvalidParameterError: a role or text cannot be used; its `field` names the message.
    """
    for index, message in enumerate(messages):
        _check_role(message.role, f"messages[{index}].role")
        _check_text(message.content, f"messages[{index}].content")
    kept = tuple(
        message for message in messages if message.role != "system" or message.content.strip()
    )
    if not kept:
        raise InvalidParameterError("Send at least one message that is not empty.", "messages")
    return kept


def _check_role(role: str, field: str) -> None:
    if role not in ROLES:
        raise InvalidParameterError(f"{field} must be {', '.join(ROLES)}, not {role!r}.", field)


def _check_text(content: str, field: str) -> None:
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameterError(
            f"{field} has half of a character (a lone surrogate) at position {error.start}: "
            "send whole characters.",
            field,
        ) from None


class ChatTemplate:
    """The Jinja template that came with the tokenizer. Keeps what it does, default texts too."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._is_missing = template_source(tokenizer) == ""

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool = False,
    ) -> str:
        """The prompt's text.

        Raises:
            InvalidParameterError: the template refuses these messages, or there is none.
        """
        if self._is_missing:
            raise InvalidParameterError(
                "This model has no chat template: choose one that was trained to chat.", "messages"
            )
        try:
            text: str = self._tokenizer.apply_chat_template(
                [message._asdict() for message in messages],
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
            )
        except (TemplateError, TypeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else "?"
            raise InvalidParameterError(
                f"The model's chat template refuses these messages: {reason}.", "messages"
            ) from error
        return text
