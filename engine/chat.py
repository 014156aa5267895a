"""Chat on top of an Engine: prompts from messages, and transcripts kept when answers end.

Templates and tokenization run in worker threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
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
from engine.text.transcript import Transcript

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)

_MAX_PROMPTS_WAITING = 256
_MAX_PROMPTS_OF_OWNER = 128  # one alone cannot keep the others out
_NUM_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One answer to ask for.

    `owner` is whose transcripts are looked up and kept, `user` who is served (see
    GenerationRequest, like `conversation`). `request_id` None: one is made.
    """

    messages: tuple[ChatMessage, ...]
    sampling: SamplingParams
    owner: str
    user: str | None = None
    cache_salt: str = ""
    conversation: str = ""
    continue_final_message: bool = False
    known_transcripts: tuple[Transcript, ...] = ()
    request_id: str | None = None
    timeout_s: float | None = None


class PreparedChat(NamedTuple):
    """A request whose prompt is built: `ChatService.submit` takes it on."""

    request: ChatRequest
    formatter: ChatFormatter
    prompt: ChatPrompt

    @property
    def num_tokens(self) -> int:
        return len(self.prompt.token_ids)


class Reply(NamedTuple):
    """What was read of an answer so far."""

    text: str
    token_ids: tuple[int, ...]


class ChatStream:
    """One answer, for one reader. Leaving the iteration early, or `close`, aborts it."""

    def __init__(
        self,
        stream: RequestStream,
        prepared: PreparedChat,
        remember: Callable[[Reply], Future[Transcript | None]],
    ) -> None:
        self._stream = stream
        self._prompt = prepared.prompt
        self._formatter = prepared.formatter
        self._remember_reply = remember
        self._remembering: Future[Transcript | None] | None = None
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
    def transcript(self) -> Transcript | None:
        """What to keep of this conversation; None before the end, or where nothing was said."""
        if self._remembering is None or not self._remembering.done():
            return None
        return self._remembering.result()

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
                    await self._remembered()  # before the reader can send the next turn
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

    async def _remembered(self) -> None:
        self._remember()
        if self._remembering is not None:
            await asyncio.shield(asyncio.wrap_future(self._remembering))

    def _remember(self) -> None:
        if self._is_remembered:
            return
        self._is_remembered = True
        reply = Reply("".join(self._texts), tuple(self._token_ids))
        self._remembering = self._remember_reply(reply)

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


class ChatService:
    """Opens chat answers on an engine. Works with any number of event loops."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="hearth-prompt")
        self._count_lock = threading.Lock()
        self._num_waiting: Counter[str] = Counter()  # prompts of each owner
        self._remembering: defaultdict[str, set[Future[Transcript | None]]] = defaultdict(set)
        self._load_lock = threading.Lock()
        self._loaded: _Loaded | None = None

    async def open(self, request: ChatRequest) -> ChatStream:
        """Queue an answer: `prepare` and `submit` in one.

        Raises:
            RequestError: it is refused, before or by the engine.
            EngineNotReadyError, EngineDeadError: see `Engine.model_info`.
        """
        return self.submit(await self.prepare(request))

    async def prepare(self, request: ChatRequest) -> PreparedChat:
        """Build the prompt, for a caller who decides by its length. Raises what `open` raises."""
        info = self._engine.model_info()
        await self._earlier_replies(request.owner)
        work = partial(self._build_prompt, info, request)
        return await self._in_thread(request.owner, work)

    def submit(self, prepared: PreparedChat, *, max_tokens: int | None = None) -> ChatStream:
        """Queue a prepared answer, with other `max_tokens` where given. Raises as `open`."""
        request, _, prompt = prepared
        sampling = request.sampling
        if max_tokens is not None:
            sampling = replace(sampling, max_tokens=max_tokens)
        stream = self._engine.submit(
            GenerationRequest(
                request_id=request.request_id or f"chat-{uuid.uuid4().hex}",
                prompt_token_ids=prompt.token_ids,
                sampling=sampling,
                user=request.user,
                cache_salt=request.cache_salt,
                conversation=request.conversation,
                timeout_s=request.timeout_s,
            )
        )
        return ChatStream(stream, prepared, partial(self._remember, prepared))

    def forget(self, conversations: Sequence[str]) -> None:
        """See Engine.forget."""
        self._engine.forget(conversations)

    async def _in_thread(self, owner: str, work: Callable[[], _Result]) -> _Result:
        with self._count_lock:
            is_full = self._num_waiting.total() >= _MAX_PROMPTS_WAITING
            if is_full or self._num_waiting[owner] >= _MAX_PROMPTS_OF_OWNER:
                raise QueueFullError("Too many prompts are being prepared: try again shortly.", 1)
            self._num_waiting[owner] += 1
        future = self._threads.submit(work)
        future.add_done_callback(partial(self._count_down, owner))
        return await asyncio.wrap_future(future)

    def _count_down(self, owner: str, _: Future[Any]) -> None:
        with self._count_lock:
            self._num_waiting[owner] -= 1
            if not self._num_waiting[owner]:
                del self._num_waiting[owner]

    def _build_prompt(self, info: ModelInfo, request: ChatRequest) -> PreparedChat:
        formatter = self._load(info).formatter
        prompt = formatter.build(
            request.messages,
            owner=request.owner,
            add_generation_prompt=not request.continue_final_message,
            continue_final_message=request.continue_final_message,
            known_transcripts=request.known_transcripts,
        )
        return PreparedChat(request, formatter, prompt)

    def _remember(self, prepared: PreparedChat, reply: Reply) -> Future[Transcript | None]:
        """Decoding a long reply takes many milliseconds: not on the event loop."""
        owner = prepared.request.owner
        with self._count_lock:
            future = self._threads.submit(_remember_now, prepared, reply)
            self._remembering[owner].add(future)
        future.add_done_callback(partial(self._is_remembered, owner))
        return future

    def _is_remembered(self, owner: str, future: Future[Transcript | None]) -> None:
        with self._count_lock:
            self._remembering[owner].discard(future)
            if not self._remembering[owner]:
                del self._remembering[owner]

    async def _earlier_replies(self, owner: str) -> None:
        """Return when all that this owner has read by now is remembered."""
        with self._count_lock:
            remembering = tuple(self._remembering.get(owner, ()))
        if remembering:
            await asyncio.wait([asyncio.wrap_future(future) for future in remembering])

    def _load(self, info: ModelInfo) -> _Loaded:
        """On first use; anew, without transcripts, when the model has changed."""
        with self._load_lock:
            if self._loaded is None or self._loaded.tokenizer_path != info.tokenizer_path:
                tokenizers = load_tokenizers(
                    info.tokenizer_path, runs_code=info.tokenizer_runs_code
                )
                formatter = ChatFormatter(tokenizers, max_model_len=info.max_model_len)
                self._loaded = _Loaded(info.tokenizer_path, formatter)
            return self._loaded


def _remember_now(prepared: PreparedChat, reply: Reply) -> Transcript | None:
    """Never raises: an answer that cannot be remembered is encoded anew in the next turn."""
    try:
        return prepared.formatter.remember(
            prepared.prompt,
            owner=prepared.request.owner,
            reply_text=reply.text,
            reply_token_ids=reply.token_ids,
        )
    except Exception:
        _log.exception("The transcript of an answer could not be kept.")
        return None
