"""The bodies of the chat's calls, with strict JSON types: a string is never a number.

Unknown fields are refused. Settings are checked by ChatSettings, and what a conversation can hold
where it is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ui.chat.room import OnFull
from ui.chat.routes.errors import ChatApiError
from ui.chat.settings import ChatSettings

_JSON = "application/json"
_MAX_SHOWN_CHARS = 80


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


Id = Annotated[str, Field(min_length=1, max_length=64)]
QuestionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,40}$")]
OnFullName = Literal["drop", "summarise"]


class _WithSettings(_Strict):
    settings: dict[str, JsonValue]

    def chosen_settings(self) -> ChatSettings:
        """Raises InvalidParameterError: unknown, of a wrong type, or out of range."""
        return ChatSettings.from_json(self.settings)


class _Asking(_WithSettings):
    on_full: OnFullName | None = None

    def chosen_on_full(self) -> OnFull | None:
        return None if self.on_full is None else OnFull(self.on_full)


class AskBody(_Asking):
    """`parent_id` null is a first question; where it is not given, the path goes on."""

    conversation_id: Id | None
    parent_id: Id | None = None
    question_id: QuestionId
    text: str

    @property
    def has_parent(self) -> bool:
        return "parent_id" in self.model_fields_set


class RegenerateBody(_Asking):
    pass


class ContinueBody(_WithSettings):
    pass


class EditBody(_Strict):
    text: str


class CountBody(_WithSettings):
    conversation_id: Id | None
    text: str


class PresetBody(_WithSettings):
    pass


class PatchBody(_Strict):
    title: str | None = None
    is_pinned: bool | None = None
    is_archived: bool | None = None


Body = TypeVar("Body", bound=BaseModel)


def json_body(model: type[Body]) -> Callable[[Request], Awaitable[Body]]:
    """A dependency that reads a request's body as this model.

    The dependency raises ChatApiError: 415 without a JSON content type, 400 naming the field.
    """

    async def read(request: Request) -> Body:
        require_content_type(request, _JSON)
        try:
            return model.model_validate_json(await request.body())
        except ValidationError as error:
            raise _refusal(error) from None

    return read


def require_content_type(request: Request, wanted: str) -> None:
    """Pages of other sites cannot send these types without the browser asking us first."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise ChatApiError(415, "wrong_type", f"Send this as 'Content-Type: {wanted}'.")


AskIn = Annotated[AskBody, Depends(json_body(AskBody))]
RegenerateIn = Annotated[RegenerateBody, Depends(json_body(RegenerateBody))]
ContinueIn = Annotated[ContinueBody, Depends(json_body(ContinueBody))]
EditIn = Annotated[EditBody, Depends(json_body(EditBody))]
CountIn = Annotated[CountBody, Depends(json_body(CountBody))]
PresetIn = Annotated[PresetBody, Depends(json_body(PresetBody))]
PatchIn = Annotated[PatchBody, Depends(json_body(PatchBody))]


def _refusal(error: ValidationError) -> ChatApiError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    kind, what = first["type"], first["msg"]
    if kind == "json_invalid":
        detail = what.removeprefix("Invalid JSON: ")
        return ChatApiError(400, "invalid_json", f"The body is not valid JSON: {detail}.")
    field = _path(first["loc"])
    if kind == "missing":
        message = f"{field} is missing."
    elif kind == "extra_forbidden":
        message = f"{field} is not known here: leave it out."
    elif kind == "string_pattern_mismatch":
        message = f"{field} must be 16 to 40 characters of A-Z, a-z, 0-9, - and _."
    else:
        message = f"{field or 'The body'} must be {_requirement(what)}."
    return ChatApiError(400, "invalid_value", message, field=field)


def _requirement(what: str) -> str:
    """`Input should be a valid string` as `a valid string`."""
    for beginning in ("Input should be ", "Input should have ", "String should have "):
        if what.startswith(beginning):
            return ("of " if "have" in beginning else "") + what.removeprefix(beginning)
    return what


def _path(location: tuple[Any, ...]) -> str | None:
    """`("settings", "top_p")` as `settings.top_p`, shortened: an unknown name may be long."""
    return ".".join(str(part) for part in location)[:_MAX_SHOWN_CHARS] or None
