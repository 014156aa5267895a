"""The body of POST /v1/chat/completions, with strict JSON types: a string is never a number.

Ranges are checked by SamplingParams, so that the page and /v1 refuse the same values. Names are
OpenAI's and, for the extensions, vLLM's. Fields that would change the answer and are not supported
are refused unless they ask for nothing; all other unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from ui.api.errors import ApiError

_UNSUPPORTED: Mapping[str, tuple[JsonValue, ...]] = {
    # field -> the values, besides null, that ask for nothing
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "prompt_logprobs": (),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "web_search_options": (),
}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")


class StreamOptions(_Strict):
    include_usage: bool | None = None


class Message(_Strict):
    role: str
    content: JsonValue = None


class ChatCompletionBody(_Strict):
    """Null always means "not given".

    `max_completion_tokens` wins over `max_tokens`; without either the context is the limit.
    Sampling values that are not given come from the model's generation_config, as in vLLM, and
    then from OpenAI's defaults.

    `user` (or else the client's address) is whom the engine is fair to. The transcripts by which a
    later turn finds its token ids belong to the API key and `user` together. `cache_salt` keeps KV
    blocks apart: requests with different salts never share a prefix.

    A last message of the assistant is continued, not answered; `add_generation_prompt: true`
    answers it in a new turn.
    """

    messages: list[Message]
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    ignore_eos: bool | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    user: str | None = None
    cache_salt: str | None = None


def parse_chat_completion(raw: bytes) -> ChatCompletionBody:
    """Read a request body.

    Raises:
        ApiError: 400, naming the field.
    """
    try:
        body = ChatCompletionBody.model_validate_json(raw)
    except ValidationError as error:
        raise _refusal(error) from None
    for name, value in (body.model_extra or {}).items():
        if name in _UNSUPPORTED and value is not None and value not in _UNSUPPORTED[name]:
            raise _not_supported(name)
    if body.n is not None and body.n != 1:
        message = f"n must be 1, not {body.n}: send the request again for another answer."
        raise ApiError(400, message, param="n", code="invalid_value")
    return body


def _not_supported(name: str) -> ApiError:
    message = f"{name} is not supported here: leave it out."
    return ApiError(400, message, param=name, code="unsupported_parameter")


def _refusal(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        detail = first["msg"].removeprefix("Invalid JSON: ")
        return ApiError(400, f"The body is not valid JSON: {detail}.", code="invalid_json")
    param = _path(first["loc"])
    if first["type"] == "missing":
        return ApiError(400, f"{param} is missing.", param=param, code="missing_parameter")
    what = first["msg"].removeprefix("Input should be ")
    subject = param or "The body"
    return ApiError(400, f"{subject} must be {what}.", param=param, code="invalid_type")


def _path(location: tuple[Any, ...]) -> str | None:
    """`("messages", 0, "role")` as `messages[0].role`; the names of union branches are left out."""
    path = ""
    for index, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]"
        elif index == 0:
            path = part
        elif location[0] != "stop":
            path += f".{part}"
    return path or None
