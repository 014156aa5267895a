"""The sampling fields of a request -> SamplingParams, with the model's own defaults."""

from __future__ import annotations

from collections.abc import Mapping

from engine import MAX_LOGPROBS, InvalidParameterError, SamplingParams
from ui.api.schemas import ChatCompletionBody


def sampling_of(body: ChatCompletionBody, defaults: Mapping[str, float]) -> SamplingParams:
    """Values of the body, then of the model's generation_config, then OpenAI's.

    Raises:
        InvalidParameterError: a value is out of range; `field` is the name the client used.
    """
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    max_tokens = _max_tokens_of(body)
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=_first(body.temperature, defaults.get("temperature"), 1.0),
        top_k=int(_first(body.top_k, defaults.get("top_k"), -1)),
        top_p=_first(body.top_p, defaults.get("top_p"), 1.0),
        min_p=_first(body.min_p, defaults.get("min_p"), 0.0),
        repetition_penalty=_first(body.repetition_penalty, defaults.get("repetition_penalty"), 1.0),
        presence_penalty=_first(body.presence_penalty, None, 0.0),
        frequency_penalty=_first(body.frequency_penalty, None, 0.0),
        seed=body.seed,
        stop=stop,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        logit_bias=_logit_bias_of(body),
        logprobs=_logprobs_of(body),
    )


def _first(given: float | None, model_default: float | None, default: float) -> float:
    if given is not None:
        return given
    return default if model_default is None else model_default


def _max_tokens_of(body: ChatCompletionBody) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value: int | None = getattr(body, name)
        if value is not None:
            if value < 1:
                raise InvalidParameterError(f"{name} must be at least 1, not {value}.", name)
            return value
    return None


def _logit_bias_of(body: ChatCompletionBody) -> dict[int, float]:
    try:
        return {int(token_id): bias for token_id, bias in (body.logit_bias or {}).items()}
    except ValueError:
        raise InvalidParameterError(
            "logit_bias must have token ids as its keys.", "logit_bias"
        ) from None


def _logprobs_of(body: ChatCompletionBody) -> int | None:
    num_top = body.top_logprobs or 0
    if not 0 <= num_top <= MAX_LOGPROBS:
        raise InvalidParameterError(
            f"top_logprobs must be from 0 to {MAX_LOGPROBS}, not {num_top}.", "top_logprobs"
        )
    if num_top and not body.logprobs:
        raise InvalidParameterError("top_logprobs needs logprobs: true.", "top_logprobs")
    return num_top if body.logprobs else None
