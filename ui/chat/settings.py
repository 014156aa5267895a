"""What a person may set for a chat, as plain values, and its sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine import SamplingParams


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
    def from_controls(cls, *values: object) -> ChatSettings:
        """One value for each field; an emptied control (None) is its usual value."""
        given = zip(cls.__dataclass_fields__, values, strict=True)
        return cls(**{name: value for name, value in given if value is not None})  # type: ignore[arg-type]

    def sampling(self) -> SamplingParams:
        """Sliders deliver whole numbers for their end stops, and number boxes may deliver floats.

        Raises:
            InvalidParameterError: a value is out of range.
        """
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
