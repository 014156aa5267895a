"""OpenAI messages -> ChatMessages: parts joined to one string, what has no text refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from engine import ChatMessage
from ui.api.errors import ApiError
from ui.api.schemas import Message

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


def read_messages(messages: Sequence[Message]) -> tuple[ChatMessage, ...]:
    """Check and convert; an empty system message is none.

    Raises:
        ApiError: 400, naming the message and field.
    """
    if not messages:
        raise _refusal("messages must hold at least one message.", "messages")
    read = tuple(_read(message, f"messages[{index}]") for index, message in enumerate(messages))
    kept = tuple(message for message in read if message.role != "system" or message.content)
    if not kept:
        raise _refusal("messages holds nothing but empty system messages.", "messages")
    return kept


def _read(message: Message, path: str) -> ChatMessage:
    role = _ROLES.get(message.role)
    if role is None:
        known = ", ".join(_ROLES)
        raise _refusal(f"{path}.role must be one of {known}, not {message.role!r}.", f"{path}.role")
    for name in ("tool_calls", "function_call"):
        if (message.model_extra or {}).get(name):
            raise _refusal(f"{path}.{name} is not supported here.", f"{path}.{name}")
    return ChatMessage(role, _text_of(message.content, role, f"{path}.content"))


def _text_of(content: JsonValue, role: str, path: str) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text_of_part(part, f"{path}[{i}]") for i, part in enumerate(content))
    if content is None and role == "assistant":
        return ""
    if content is None:
        raise _refusal(f"{path} is missing.", path)
    raise _refusal(f"{path} must be a string or a list of parts.", path)


def _text_of_part(part: JsonValue, path: str) -> str:
    if not isinstance(part, Mapping):
        raise _refusal(f"{path} must be an object with a type.", path)
    kind, text = part.get("type"), part.get("text")
    if kind != "text":
        raise _refusal(f"{path} is not text: {kind!r} parts are not supported here.", path)
    if not isinstance(text, str):
        raise _refusal(f"{path}.text must be a string.", f"{path}.text")
    return text


def _refusal(message: str, param: str) -> ApiError:
    return ApiError(400, message, param=param, code="invalid_value")
