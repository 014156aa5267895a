"""What a caller may ask of the sampler, checked once, before a request is queued."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from engine.errors import InvalidParameterError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_LOGIT_BIAS = 1024
MAX_TOP_K = 1024
_INT64_MAX = 2**63 - 1


class TokenConstraint(Protocol):
    """The seam for grammars: says which tokens may come next."""

    def allowed_token_ids(self, output_token_ids: Sequence[int]) -> Sequence[int] | None:
        """Ids that may follow `output_token_ids`; None allows every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one request's tokens are chosen. Names and meanings are vLLM's.

    `temperature` 0 is greedy. `top_k` 0 or -1 and `top_p` 1 turn that filter off.
    `repetition_penalty` counts prompt and output, the other two penalties count the output only.
    `logprobs` is the number of alternatives to report for each token (0: the chosen one only).
    `max_tokens` None means "as many as the context has room for".

    Raises:
        InvalidParameterError: a value is out of range; its `field` names it.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    logprobs: int | None = None
    constraint: TokenConstraint | None = None

    def __post_init__(self) -> None:
        _check_whole("max_tokens", self.max_tokens, 1, None)
        _check_real("temperature", self.temperature, 0.0, 2.0)
        _check_whole("top_k", self.top_k, -1, None)
        _check_real("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _check_real("min_p", self.min_p, 0.0, 1.0)
        _check_real("repetition_penalty", self.repetition_penalty, 0.0, 10.0, low_open=True)
        _check_real("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_real("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_whole("seed", self.seed, -_INT64_MAX - 1, _INT64_MAX)
        _check_whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        self._check_stops()
        self._check_bias()

    def _check_stops(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidParameterError(f"Give at most {MAX_STOP_STRINGS} stop strings.", "stop")
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise InvalidParameterError("Each stop string must be non-empty text.", "stop")
        for token_id in self.stop_token_ids:
            _check_whole("stop_token_ids", token_id, 0, None)

    def _check_bias(self) -> None:
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise InvalidParameterError(
                f"Give at most {MAX_LOGIT_BIAS} logit_bias entries.", "logit_bias"
            )
        for token_id, bias in self.logit_bias.items():
            _check_whole("logit_bias", token_id, 0, None)
            _check_real("logit_bias", bias, -100.0, 100.0)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids that the model does not have.

        Raises:
            InvalidParameterError: an id in `logit_bias` or `stop_token_ids` is too large.
        """
        for name, ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_token_ids)):
            for token_id in ids:
                if token_id >= vocab_size:
                    raise InvalidParameterError(
                        f"{name} names token {token_id}, but this model's tokens end at "
                        f"{vocab_size - 1}.",
                        name,
                    )


def _check_whole(name: str, value: object, low: int, high: int | None) -> None:
    if value is None and name in {"max_tokens", "seed", "logprobs"}:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameterError(f"{name} must be a whole number, not {value!r}.", name)
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidParameterError(f"{name} must be {bounds}, not {value}.", name)


def _check_real(name: str, value: object, low: float, high: float, low_open: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidParameterError(f"{name} must be a number, not {value!r}.", name)
    below = value <= low if low_open else value < low
    if not math.isfinite(value) or below or value > high:
        start = f"above {low:g} and up to" if low_open else f"from {low:g} to"
        raise InvalidParameterError(f"{name} must be {start} {high:g}, not {value}.", name)
