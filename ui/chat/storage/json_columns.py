"""Facts, cuts and settings as JSON text, and back. What comes back was written by this program."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from engine import FinishReason, InvalidParameterError
from ui.chat.characters import whole_characters
from ui.chat.conversation import ContextCut, ReplyFacts
from ui.chat.settings import ChatSettings

_LARGEST = 2**53
_MAX_ERROR_CHARS = 2_000


def settings_text(settings: ChatSettings) -> str:
    return json.dumps(settings.to_json())


def settings_of(text: str) -> ChatSettings:
    """Values that are no longer allowed become the usual ones: a conversation must always open."""
    try:
        return ChatSettings.from_json(json.loads(text), ignore_unknown=True)
    except InvalidParameterError:
        return ChatSettings()


def facts_json(facts: ReplyFacts) -> dict[str, Any]:
    return dataclasses.asdict(facts)


def facts_text(facts: ReplyFacts | None) -> str | None:
    return None if facts is None else json.dumps(facts_json(facts))


def facts_of(text: str | None) -> ReplyFacts | None:
    return None if text is None else facts_from_json(json.loads(text))


def facts_from_json(value: object) -> ReplyFacts | None:
    """None where it is not one; fields that are unknown or no numbers are left out."""
    if not isinstance(value, dict):
        return None
    try:
        reason = FinishReason(str(value.get("finish_reason")))
    except ValueError:
        return None
    numbers: dict[str, Any] = {
        field.name: value[field.name]
        for field in dataclasses.fields(ReplyFacts)
        if _is_number(value.get(field.name))
    }
    error = value.get("error")
    words = whole_characters(error)[:_MAX_ERROR_CHARS] if isinstance(error, str) else None
    return ReplyFacts(finish_reason=reason, error=words, **numbers)


def _is_number(value: object) -> bool:
    """Of a size that every reader of JSON can take."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]


def cut_text(cut: ContextCut | None) -> str | None:
    return None if cut is None else json.dumps(cut._asdict())


def cut_of(text: str | None) -> ContextCut | None:
    return None if text is None else ContextCut(**json.loads(text))
