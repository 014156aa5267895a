"""What a person may set for a chat, as plain values, and its sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine import InvalidParameterError, SamplingParams
from ui.chat.characters import whole_characters

MAX_SYSTEM_PROMPT_CHARS = 50_000
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """In the order of the page's controls. `top_k` 0 is off; `seed` None draws anew each time."""

    system_prompt: str = ""
    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 512
    repetition_penalty: float = 1.0
    seed: int | None = None

    @classmethod
    def from_json(cls, value: object, *, ignore_unknown: bool = False) -> ChatSettings:
        """Settings from outside; what is not given has its usual value.

        Raises:
            InvalidParameterError: no object, a value of a wrong type or out of range, or a key that
                is unknown (unless those are ignored). Its `field` names the key.
        """
        if not isinstance(value, Mapping):
            raise InvalidParameterError("settings must be an object.", "settings")
        unknown = [str(name) for name in value if name not in cls.__dataclass_fields__]
        if unknown and not ignore_unknown:
            raise InvalidParameterError(f"There is no setting {unknown[0][:60]!r}.", unknown[0])
        given: dict[str, Any] = {
            name: _CONVERSIONS[name](name, value[name])
            for name in cls.__dataclass_fields__
            if name in value
        }
        settings = cls(**given)
        settings.sampling()
        return settings

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sampling(self) -> SamplingParams:
        """Raises InvalidParameterError: a value is out of range."""
        return SamplingParams(
            temperature=float(self.temperature),
            top_p=float(self.top_p),
            top_k=int(self.top_k),
            min_p=float(self.min_p),
            max_tokens=int(self.max_tokens),
            repetition_penalty=float(self.repetition_penalty),
            seed=None if self.seed is None else int(self.seed),
        )

    def with_defaults_of(self, generation_defaults: Mapping[str, float]) -> ChatSettings:
        """These settings, with what the model's own generation config recommends."""
        fitting = {
            name: type(getattr(self, name))(generation_defaults[name])
            for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
            if name in generation_defaults
        }
        return replace(self, **fitting)


def _system_prompt(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidParameterError(f"{name} must be text.", name)
    if len(value) > MAX_SYSTEM_PROMPT_CHARS:
        raise InvalidParameterError(
            f"{name} may have {MAX_SYSTEM_PROMPT_CHARS:,} characters, not {len(value):,}.", name
        )
    return whole_characters(value)


def _real(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidParameterError(f"{name} must be a number.", name)
    if not -_LARGEST <= value <= _LARGEST:
        raise InvalidParameterError(f"{name} is no number of a usable size.", name)
    return float(value)


def _whole(name: str, value: object) -> int:
    """Number boxes of a page may say 40.0 for 40."""
    number = _real(name, value)
    if not number.is_integer():
        raise InvalidParameterError(f"{name} must be a whole number, not {number:g}.", name)
    return value if isinstance(value, int) else int(number)


def _whole_or_none(name: str, value: object) -> int | None:
    return None if value is None else _whole(name, value)


_CONVERSIONS: Mapping[str, Any] = {
    "system_prompt": _system_prompt,
    "temperature": _real,
    "top_p": _real,
    "top_k": _whole,
    "min_p": _real,
    "max_tokens": _whole,
    "repetition_penalty": _real,
    "seed": _whole_or_none,
}
