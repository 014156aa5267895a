"""Chat on top of an Engine: prompts from messages, and transcripts kept when answers end.

Templates and tokenization run in worker threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from engine.config import ModelInfo
from engine.engine import Engine, RequestStream
from engine.errors import QueueFullError
from engine.request import GenerationRequest, RequestOutput, RequestProgress
from engine.sampling_params import SamplingParams
from engine.text.chat_template import ChatMessage
from engine.text.formatter import ChatFormatter, ChatPrompt
from engine.text.tokenizer import load_tokenizers

_Result = TypeVar("_Result")

_MAX_PROMPTS_WAITING = 256
_NUM_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One answer to ask for.

    `owner` is whose transcripts are looked up and kept, `user` who is served (see
    GenerationRequest). `request_id` None: one is made.
    """

    messages: tuple[ChatMessage, ...]
    sampling: SamplingParams
    owner: str
    user: str | None = None
    cache_salt: str = ""
    continue_final_message: bool = False
    request_id: str | None = None
    timeout_s: float | None = None


class ChatStream:
    """One answer, for one reader. Leaving the iteration early, or `close`, aborts it."""

    def __init__(
        self, stream: RequestStream, prompt: ChatPrompt, formatter: ChatFormatter, owner: str
    ) -> None:
        self._stream = stream
        self._prompt = prompt
        self._formatter = formatter
        self._owner = owner
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._is_begun = False
        self._is_remembered = True  # nothing was read yet

    @property
    def request_id(self) -> str:
        return self._stream.request_id

    @property
    def prompt_token_ids(self) -> tuple[int, ...]:
        return self._prompt.token_ids

    @property
    def progress(self) -> RequestProgress:
        return self._stream.progress

    def token_bytes(self, token_id: int) -> bytes:
        """What a token stands for; it may be a part of a character."""
        return self._formatter.token_bytes(token_id)

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        try:
            async for output in self._stream:
                self._keep(output)
                if output.finish_reason is not None:
                    self._remember()  # before the reader can send the next turn
                yield self._spaced(output)
        finally:
            self.close()

    def close(self) -> None:
        """Abort if it still runs, and keep what was read as the conversation's transcript."""
        self._stream.close()
        self._remember()

    def _keep(self, output: RequestOutput) -> None:
        self._is_remembered = False
        self._texts.append(output.text)
        self._token_ids += output.token_ids
        if output.num_accepted_tokens is not None:
            del self._token_ids[output.num_accepted_tokens :]

    def _remember(self) -> None:
        if self._is_remembered:
            return
        self._is_remembered = True
        self._formatter.remember(
            self._prompt,
            owner=self._owner,
            reply_text="".join(self._texts),
            reply_token_ids=self._token_ids,
        )

    def _spaced(self, output: RequestOutput) -> RequestOutput:
        """The same output; the first one with text gets the space that a continued reply needs."""
        if self._is_begun or not output.text:
            return output
        self._is_begun = True
        space = self._formatter.space_before(self._prompt, self._token_ids)
        return replace(output, text=space + output.text) if space else output


class _Loaded(NamedTuple):
    tokenizer_path: str
    formatter: ChatFormatter


class _BuiltPrompt(NamedTuple):
    formatter: ChatFormatter
    prompt: ChatPrompt


class ChatService:
    """Opens chat answers on an engine. Works with any number of event loops."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="hearth-prompt")
        self._count_lock = threading.Lock()
        self._num_waiting = 0
        self._load_lock = threading.Lock()
        self._loaded: _Loaded | None = None

    async def open(self, request: ChatRequest) -> ChatStream:
        """Queue an answer.

        Raises:
            RequestError: it is refused, before or by the engine.
            EngineNotReadyError, EngineDeadError: see `Engine.model_info`.
        """
        info = self._engine.model_info()
        formatter, prompt = await self._in_thread(
            partial(
                self._build_prompt,
                info,
                request.messages,
                request.owner,
                request.continue_final_message,
            )
        )
        stream = self._engine.submit(
            GenerationRequest(
                request_id=request.request_id or f"chat-{uuid.uuid4().hex}",
                prompt_token_ids=prompt.token_ids,
                sampling=request.sampling,
                user=request.user,
                cache_salt=request.cache_salt,
                timeout_s=request.timeout_s,
            )
        )
        return ChatStream(stream, prompt, formatter, request.owner)

    async def count_tokens(self, messages: tuple[ChatMessage, ...], owner: str) -> int:
        """Length of the prompt that these messages would make."""
        info = self._engine.model_info()
        _, prompt = await self._in_thread(partial(self._build_prompt, info, messages, owner, False))
        return len(prompt.token_ids)

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        with self._count_lock:
            if self._num_waiting >= _MAX_PROMPTS_WAITING:
                raise QueueFullError("Too many prompts are being prepared: try again shortly.", 1)
            self._num_waiting += 1
        future = self._threads.submit(work)
        future.add_done_callback(self._count_down)
        return await asyncio.wrap_future(future)

    def _count_down(self, _: Future[Any]) -> None:
        with self._count_lock:
            self._num_waiting -= 1

    def _build_prompt(
        self,
        info: ModelInfo,
        messages: tuple[ChatMessage, ...],
        owner: str,
        continue_final_message: bool,
    ) -> _BuiltPrompt:
        formatter = self._load(info).formatter
        prompt = formatter.build(
            messages,
            owner=owner,
            add_generation_prompt=not continue_final_message,
            continue_final_message=continue_final_message,
        )
        return _BuiltPrompt(formatter, prompt)

    def _load(self, info: ModelInfo) -> _Loaded:
        """On first use; anew, without transcripts, when the model has changed."""
        with self._load_lock:
            if self._loaded is None or self._loaded.tokenizer_path != info.tokenizer_path:
                tokenizers = load_tokenizers(info.tokenizer_path)
                formatter = ChatFormatter(tokenizers, max_model_len=info.max_model_len)
                self._loaded = _Loaded(info.tokenizer_path, formatter)
            return self._loaded
