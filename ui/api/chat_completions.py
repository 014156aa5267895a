"""POST /v1/chat/completions: one body in, a whole completion or a stream of chunks out."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response

from engine import (
    ChatRequest,
    ChatService,
    ChatStream,
    Engine,
    HearthError,
    InvalidParameterError,
    ModelInfo,
    RequestError,
    RequestProgress,
    RequestStatus,
)
from ui.api.errors import CLIENT_CLOSED_REQUEST, ApiError, api_error_of, internal_error
from ui.api.event_stream import DONE_EVENT, EventStreamResponse, comment, data_event, or_silence
from ui.api.messages import read_messages
from ui.api.models import served_name
from ui.api.reply import Reply
from ui.api.sampling import sampling_of
from ui.api.schemas import ChatCompletionBody, parse_chat_completion
from ui.server_config import ServerConfig

_log = logging.getLogger(__name__)


def chat_completions_router(
    *, engine: Engine, chat: ChatService, config: ServerConfig
) -> APIRouter:
    router = APIRouter()

    @router.post("/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        _check_content_type(request)
        body = parse_chat_completion(await request.body())
        info = engine.model_info()
        _check_model(body, served_name(config, info))
        stream = await _open(chat, _chat_request(request, body, info), body)
        reply = _reply(stream, body, served_name(config, info))
        if body.stream:
            events = _events(stream, reply, config.keep_alive_interval_s)
            return EventStreamResponse(events, stream.close)
        return await _whole(stream, reply, request)

    return router


def _check_content_type(request: Request) -> None:
    """A page of another site can post text/plain unasked, but not JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "Send the body with Content-Type: application/json.")


def _check_model(body: ChatCompletionBody, name: str) -> None:
    if body.model and body.model != name:
        message = f"There is no model {body.model!r} here: use {name!r}."
        raise ApiError(404, message, param="model", code="model_not_found")


async def _open(chat: ChatService, asked: ChatRequest, body: ChatCompletionBody) -> ChatStream:
    """Raises ApiError with the field's name as the client wrote it."""
    try:
        return await chat.open(asked)
    except RequestError as error:
        refusal = api_error_of(error)
        if refusal.param == "prompt_token_ids":
            refusal.param = "messages"
        if refusal.param == "max_tokens" and body.max_completion_tokens is not None:
            refusal.param = "max_completion_tokens"
        raise refusal from None


def _chat_request(request: Request, body: ChatCompletionBody, info: ModelInfo) -> ChatRequest:
    messages = read_messages(body.messages)
    client = request.client.host if request.client else "unknown"
    return ChatRequest(
        messages=messages,
        sampling=sampling_of(body, info.generation_defaults),
        owner=_owner(request, body.user),
        user=f"user:{body.user}" if body.user else f"client:{client}",
        cache_salt=body.cache_salt or "",
        continue_final_message=_continues(body, messages[-1].role),
        request_id=f"chatcmpl-{uuid.uuid4().hex}",
    )


def _owner(request: Request, user: str | None) -> str:
    key = request.headers.get("authorization", "")
    keeper = hashlib.sha256(key.encode()).hexdigest() if key else "anonymous"
    return f"{keeper}/{user or ''}"


def _continues(body: ChatCompletionBody, last_role: str) -> bool:
    """Whether the reply goes on with the last message instead of answering it."""
    field = "continue_final_message"
    if body.continue_final_message and body.add_generation_prompt:
        message = f"{field} and add_generation_prompt exclude each other: set one of them."
        raise InvalidParameterError(message, field)
    if body.continue_final_message and last_role != "assistant":
        raise InvalidParameterError(f"{field} needs a last message of the assistant.", field)
    if body.continue_final_message is not None:
        continues = body.continue_final_message
    else:
        continues = last_role == "assistant" and not body.add_generation_prompt
    if not continues and body.add_generation_prompt is False:
        message = "add_generation_prompt: false needs continue_final_message: true here."
        raise InvalidParameterError(message, "add_generation_prompt")
    return continues


def _reply(stream: ChatStream, body: ChatCompletionBody, name: str) -> Reply:
    options = body.stream_options
    return Reply(
        id=stream.request_id,
        created_s=int(time.time()),
        model=name,
        prompt_token_ids=stream.prompt_token_ids,
        token_bytes=stream.token_bytes,
        with_logprobs=bool(body.logprobs),
        with_token_ids=bool(body.return_token_ids),
        with_usage=bool(options and options.include_usage),
    )


async def _whole(stream: ChatStream, reply: Reply, request: Request) -> Response:
    """Collect the reply; a client that leaves ends it."""
    reading = asyncio.ensure_future(_collect(stream, reply))
    leaving = asyncio.ensure_future(_client_left(request))
    try:
        await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        reading.result()
        return Response(reply.completion().json_text(), media_type="application/json")
    finally:
        stream.close()
        reading.cancel()
        leaving.cancel()


async def _collect(stream: ChatStream, reply: Reply) -> None:
    async for output in stream:
        reply.add(output)


async def _client_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _events(stream: ChatStream, reply: Reply, interval_s: float) -> AsyncIterator[bytes]:
    yield comment(_progress_text(stream.progress))
    try:
        async for output in or_silence(aiter(stream), interval_s):
            if output is None:
                yield comment(_progress_text(stream.progress))
                continue
            for chunk in reply.chunks(output):
                yield data_event(chunk.json_text())
    except ApiError as error:
        yield data_event(error.json_text())
    except HearthError as error:
        yield data_event(api_error_of(error).json_text())
    except Exception:
        _log.exception("The stream of %s failed.", stream.request_id)
        yield data_event(internal_error().json_text())
    yield DONE_EVENT


def _progress_text(progress: RequestProgress) -> str:
    if progress.queue_position is not None:
        return f"queued {progress.queue_position}"
    if progress.status is RequestStatus.RUNNING:
        return f"read {progress.num_computed_tokens} of {progress.num_prompt_tokens} prompt tokens"
    return "waiting" if progress.status is RequestStatus.WAITING else "finishing"
