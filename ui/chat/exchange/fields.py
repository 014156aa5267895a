"""Reading values out of files that people bring: anything may be missing or of another type."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from ui.chat.characters import whole_characters

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_LATEST_S = 253_402_300_799.0  # the end of the year 9999


class BrokenEntryError(Exception):
    """A file, or one conversation in it, cannot be read. The message is a sentence for people."""


def object_list(source: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Raises BrokenEntryError."""
    value = source.get(name)
    if not isinstance(value, list) or any(not isinstance(item, Mapping) for item in value):
        raise BrokenEntryError(f"{name} is not a list of objects.")
    return value


def plain_text(source: Mapping[str, Any], name: str) -> str:
    """Raises BrokenEntryError."""
    value = source.get(name)
    if not isinstance(value, str):
        raise BrokenEntryError(f"{name} is not text.")
    return whole_characters(value)


def identifier(source: Mapping[str, Any], name: str) -> str:
    """Raises BrokenEntryError."""
    return plain_identifier(plain_text(source, name))


def identifier_or_none(source: Mapping[str, Any], name: str) -> str | None:
    """Raises BrokenEntryError."""
    return None if source.get(name) is None else identifier(source, name)


def plain_identifier(given: str) -> str:
    """The id itself, or, where it has other characters than ours, always the same one for it."""
    return given if _PLAIN_ID.match(given) else digest_of(given)


def digest_of(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def flag(source: Mapping[str, Any], name: str) -> bool:
    return source.get(name) is True


def seconds(source: Mapping[str, Any], name: str) -> float:
    """A time of the wall clock; 0 where there is none that can be."""
    value = source.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _LATEST_S else 0.0  # type: ignore
