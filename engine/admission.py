"""Says, before a request is queued, whether it may be. Thread-safe; knows no scheduler."""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import NamedTuple

from engine.config import EngineConfig, ModelInfo
from engine.errors import ContextLengthError, InvalidParameterError, QueueFullError
from engine.request import GenerationRequest, Request
from engine.start_rate import StartRate

_WAITED_S = 1.0  # who starts later than this after arriving has waited, free slot or not
_MAX_RETRY_AFTER_S = 60


class _Queued(NamedTuple):
    user: str | None
    arrival_s: float
    had_no_slot: bool


class Admission:
    """Checks values and lengths against what never changes, and counts who is queued.

    A request counts as queued from `admit` to `started` (or `ended`), so the bounds hold whatever
    the engine's thread is doing.

    Args:
        max_pool_tokens: most tokens of one sequence that the KV pool can hold.
    """

    def __init__(self, config: EngineConfig, info: ModelInfo, max_pool_tokens: int) -> None:
        self._config = config
        self._vocab_size = info.vocab_size
        self._max_model_len = info.max_model_len
        self._max_pool_tokens = max_pool_tokens
        self._lock = threading.Lock()
        self._live: set[str] = set()
        self._queued: dict[str, _Queued] = {}
        self._rate = StartRate()
        self._num_admitted = 0
        self._num_refused = 0

    @property
    def num_admitted(self) -> int:
        return self._num_admitted

    @property
    def num_refused(self) -> int:
        return self._num_refused

    def expected_wait_s(self, queue_position: int, now_s: float) -> float | None:
        """Until the request at this place (1: next) starts, at the recent rate; None: unknown."""
        with self._lock:
            interval_s = self._rate.interval_s(now_s)
        return None if interval_s is None else interval_s * queue_position

    def admit(self, request: GenerationRequest, now_s: float) -> Request:
        """The engine's own record of an accepted request; it counts as queued from now on.

        Raises:
            RequestError: what is wrong with it, or that the queue is full.
        """
        try:
            admitted = self.check(request, now_s)
            with self._lock:
                self._check_queue(request, now_s)
                self._enter_queue(request, now_s)
        except Exception:
            with self._lock:
                self._num_refused += 1
            raise
        return admitted

    def started(self, request_id: str, now_s: float) -> None:
        """A request runs for the first time: its place in the queue is free."""
        with self._lock:
            queued = self._queued.pop(request_id, None)
            if queued is None:
                return
            if queued.had_no_slot or now_s - queued.arrival_s >= _WAITED_S:
                self._rate.started(now_s, queued.arrival_s)
            self._note_idle_queue()

    def ended(self, request_id: str) -> None:
        with self._lock:
            self._live.discard(request_id)
            if self._queued.pop(request_id, None) is not None:
                self._note_idle_queue()

    def check(self, request: GenerationRequest, now_s: float) -> Request:
        """Values and lengths alone.

        Raises:
            RequestError: what is wrong.
        """
        self._check_prompt(request)
        request.sampling.check_vocabulary(self._vocab_size)
        timeout_s = self._config.request_timeout_s
        if request.timeout_s is not None:
            if not request.timeout_s > 0:
                raise InvalidParameterError("timeout_s must be above 0.", "timeout_s")
            timeout_s = min(timeout_s, request.timeout_s)
        return Request(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            sampling=request.sampling,
            max_tokens=self._max_tokens(request),
            user=request.user,
            cache_salt=request.cache_salt,
            conversation=request.conversation,
            arrival_s=now_s,
            deadline_s=now_s + timeout_s,
        )

    def _check_prompt(self, request: GenerationRequest) -> None:
        prompt = request.prompt_token_ids
        if not prompt:
            raise InvalidParameterError("The prompt is empty: send a message.", "prompt_token_ids")
        if min(prompt) < 0 or max(prompt) >= self._vocab_size:
            raise InvalidParameterError(
                f"The prompt has token ids outside 0 to {self._vocab_size - 1}: encode it with "
                "this model's tokenizer.",
                "prompt_token_ids",
            )

    def _max_tokens(self, request: GenerationRequest) -> int:
        """Most tokens that the reply may have."""
        limit = min(self._max_model_len, self._max_pool_tokens)
        num_prompt_tokens = len(request.prompt_token_ids)
        if num_prompt_tokens >= limit:
            raise ContextLengthError(
                f"The prompt has {num_prompt_tokens:,} tokens, but {self._limit_in_words()}, the "
                "reply included: shorten it or start a new chat.",
                "prompt_token_ids",
            )
        max_tokens = request.sampling.max_tokens
        if max_tokens is None:
            return limit - num_prompt_tokens
        if num_prompt_tokens + max_tokens > limit:
            raise ContextLengthError(
                f"The prompt has {num_prompt_tokens:,} tokens and max_tokens is {max_tokens:,}, "
                f"together {num_prompt_tokens + max_tokens:,}, but {self._limit_in_words()}: "
                f"shorten the prompt or ask for at most {limit - num_prompt_tokens:,} tokens.",
                "max_tokens",
            )
        return max_tokens

    def _limit_in_words(self) -> str:
        if self._max_model_len <= self._max_pool_tokens:
            return f"the context holds {self._max_model_len:,}"
        return f"the server's KV cache holds {self._max_pool_tokens:,}"

    def _check_queue(self, request: GenerationRequest, now_s: float) -> None:
        if request.request_id in self._live:
            raise InvalidParameterError(
                f"A request with the id {request.request_id!r} is running already: use a new id.",
                "request_id",
            )
        # What will start in the next step is not waiting: its slot is free already.
        num_free_slots = self._num_free_slots()
        if len(self._queued) >= self._config.max_queued_requests + num_free_slots:
            what = f"{len(self._queued)} requests are waiting, which is the most"
            raise self._queue_full(what, now_s)
        if request.user is None:
            return
        num_own = Counter(queued.user for queued in self._queued.values())[request.user]
        if num_own >= self._config.max_queued_requests_per_user + num_free_slots:
            what = f"{num_own} of your requests are waiting, which is the most"
            raise self._queue_full(what, now_s)

    def _num_free_slots(self) -> int:
        num_running = len(self._live) - len(self._queued)
        return max(0, self._config.max_num_seqs - num_running)

    def _enter_queue(self, request: GenerationRequest, now_s: float) -> None:
        had_no_slot = len(self._queued) >= self._num_free_slots()
        if had_no_slot:
            self._rate.queue_formed(now_s)
        self._num_admitted += 1
        self._live.add(request.request_id)
        self._queued[request.request_id] = _Queued(request.user, now_s, had_no_slot)

    def _note_idle_queue(self) -> None:
        if not any(queued.had_no_slot for queued in self._queued.values()):
            self._rate.queue_emptied()

    def _queue_full(self, what: str, now_s: float) -> QueueFullError:
        retry_after_s = self._retry_after_s(now_s)
        return QueueFullError(f"{what}: try again in {retry_after_s} s.", retry_after_s)

    def _retry_after_s(self, now_s: float) -> int:
        """When about an eighth of the queue will have started, at the recent rate."""
        interval_s = self._rate.interval_s(now_s)
        if interval_s is None:
            return 1
        expected_s = interval_s * max(1, len(self._queued) // 8)
        return min(_MAX_RETRY_AFTER_S, max(1, math.ceil(expected_s)))
