"""What the server's process and the engine's say to each other: small, typed, as MessagePack."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from engine.config import ModelInfo
from engine.errors import InvalidParameterError
from engine.loop_news import LoopNews
from engine.request import Request
from engine.sampling_params import SamplingParams


class SubmitRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An admitted request. Times are of the monotonic clock, which all processes share."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    user: str | None
    cache_salt: str
    arrival_s: float
    deadline_s: float | None
    conversation: str = ""

    def request(self) -> Request:
        return Request(
            request_id=self.request_id,
            prompt_token_ids=self.prompt_token_ids,
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            user=self.user,
            cache_salt=self.cache_salt,
            arrival_s=self.arrival_s,
            deadline_s=self.deadline_s,
            conversation=self.conversation,
        )


class AbortRequest(msgspec.Struct, frozen=True, array_like=True, tag=True):
    request_id: str


class ForgetConversations(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """See Engine.forget."""

    conversations: tuple[str, ...]


class StopServing(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End all requests, then the process."""


class Loading(msgspec.Struct, frozen=True, array_like=True, tag=True):
    message: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    info: ModelInfo


class News(msgspec.Struct, frozen=True, array_like=True, tag=True):
    news: LoopNews


class LoadFailed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    message: str


class Died(msgspec.Struct, frozen=True, array_like=True, tag=True):
    what: str  # see Outlet.died


Command = SubmitRequest | AbortRequest | ForgetConversations | StopServing
Event = Loading | Ready | News | LoadFailed | Died


class Codec(NamedTuple):
    """One per thread: encoders are not shared."""

    encoder: msgspec.msgpack.Encoder
    command_decoder: msgspec.msgpack.Decoder[Command]
    event_decoder: msgspec.msgpack.Decoder[Event]

    def encode(self, message: Command | Event) -> bytes:
        return self.encoder.encode(message)

    def command(self, encoded: bytes) -> Command:
        """Raises msgspec.DecodeError, or what a value of the message refuses itself."""
        return self.command_decoder.decode(encoded)

    def event(self, encoded: bytes) -> Event:
        """The same for what the engine's process says."""
        return self.event_decoder.decode(encoded)


def make_codec() -> Codec:
    return Codec(
        msgspec.msgpack.Encoder(enc_hook=_plain),
        msgspec.msgpack.Decoder(Command),
        msgspec.msgpack.Decoder(Event),
    )


def encode_request(request: Request) -> bytes:
    """Raises InvalidParameterError where a value cannot leave this process."""
    if request.sampling.constraint is not None:
        raise InvalidParameterError(
            "A constraint is an object of the web server's process, which the engine's process "
            "cannot call: leave it out.",
            "constraint",
        )
    message = SubmitRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        sampling=request.sampling,
        max_tokens=request.max_tokens,
        user=request.user,
        cache_salt=request.cache_salt,
        arrival_s=request.arrival_s,
        deadline_s=request.deadline_s,
        conversation=request.conversation,
    )
    codec = make_codec()
    try:
        codec.command(codec.encode(msgspec.structs.replace(message, prompt_token_ids=())))
        return codec.encode(message)
    except msgspec.ValidationError as error:  # the other process would be deaf after it
        raise InvalidParameterError(f"This request cannot be sent on: {error}.") from None
    except OverflowError:
        raise InvalidParameterError("A number in this request is too large: use less.") from None
    except UnicodeEncodeError:
        raise InvalidParameterError(
            "A text in this request has half a character in it (a lone surrogate): send whole ones."
        ) from None


def readable(text: str) -> str:
    """A sentence that may hold the name of a file, whose bytes need not be text."""
    return text.encode("utf-8", "replace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be sent")
