"""A request on its way through the engine, and what comes back of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from engine.sampling_params import SamplingParams


class RequestStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(StrEnum):
    STOP = "stop"  # an end token, a stop token or a stop string
    LENGTH = "length"  # max_tokens or the context is reached
    ABORT = "abort"  # cancelled
    ERROR = "error"  # failed; RequestOutput.error says why


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What a caller submits. Plain data: it crosses a process boundary.

    `user` is who is served, for fairness and bounds (None: nobody known). `cache_salt` separates
    prefix reuse: requests with different salts never share blocks. `timeout_s` bounds the time from
    submission to the end. `conversation` names what the request belongs to, see Engine.forget.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    user: str | None = None
    cache_salt: str = ""
    timeout_s: float | None = None
    conversation: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """The engine's own record of a request; changed by Scheduler and EngineCore alone.

    Token positions:

        | prompt_token_ids            | output_token_ids      |
        | cached | computed ...                          | t  |
                                                         ^ the last sampled token has no KV yet
        num_computed_tokens: positions whose KV is in the pool.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int  # resolved at admission, never None
    user: str | None
    cache_salt: str
    arrival_s: float
    deadline_s: float | None  # absolute, on the same clock as arrival_s
    conversation: str = ""
    rope_regime: str = ""  # which of a model's rope tables its KV is computed with
    status: RequestStatus = RequestStatus.WAITING
    output_token_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(init=False)  # prompt and output in one list; read only
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # prompt tokens taken from the cache when it first started
    num_host_tokens: int = 0  # of those, brought back from host memory
    num_disk_tokens: int = 0  # and from disk
    num_preemptions: int = 0
    num_recomputed_tokens: int = 0  # when it crossed into another rope regime
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    # what it met on its way, see RequestTrace
    num_ahead: int = 0
    num_running_at_arrival: int = 0
    num_prefill_steps: int = 0
    num_decode_steps: int = 0
    num_decode_step_requests: int = 0  # over its decode steps
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.token_ids = [*self.prompt_token_ids, *self.output_token_ids]

    def append(self, token_id: int) -> None:
        """Take a sampled token. The one way in which the output grows."""
        self.output_token_ids.append(token_id)
        self.token_ids.append(token_id)

    @property
    def kv_namespace(self) -> str:
        """Requests of different ones never share KV blocks."""
        parts = (self.rope_regime, self.cache_salt)
        return "/".join(parts) if any(parts) else ""

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


class TokenLogprob(NamedTuple):
    token_id: int
    logprob: float


class TokenLogprobs(NamedTuple):
    """The chosen token and its strongest alternatives, from the model's unmodified logits."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


class Usage(NamedTuple):
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int


class RequestTimings(NamedTuple):
    """Seconds. None while it has not happened."""

    queued_s: float | None  # arrival to first scheduled
    prefill_s: float | None  # first scheduled to first token
    ttft_s: float | None  # arrival to first token
    decode_s: float | None  # first token to the latest one
    e2e_s: float | None  # arrival to the end


class RequestTrace(NamedTuple):
    """What a request met on its way: the reasons behind its timings."""

    num_ahead: int  # requests before it in the queue when it came
    num_running: int  # requests that ran then
    num_preemptions: int
    num_prefill_steps: int
    num_decode_steps: int
    mean_step_requests: float | None  # requests in its decode steps, itself included
    num_recomputed_tokens: int = 0  # when the sequence outgrew its rotary table
    num_host_tokens: int = 0  # of its cached tokens, those brought back from host memory
    num_disk_tokens: int = 0  # and from disk


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """One streamed delta. The last one has a `finish_reason`.

    `token_ids` are the ids sampled since the delta before, end tokens included; `text` is what may
    be shown of them, whole characters only. In the last delta `num_accepted_tokens` says how many
    of all sampled ids have their text wholly inside the accepted text (a stop string cuts, an end
    token has no text): those are what the transcript keeps.
    """

    request_id: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None  # the stop string or stop token id that matched
    error: str | None = None
    num_accepted_tokens: int | None = None
    usage: Usage | None = None  # in every delta that has tokens, and in the last
    timings: RequestTimings | None = None  # in the last
    trace: RequestTrace | None = None  # in the last


class RequestProgress(NamedTuple):
    """Where a request stands before its first token."""

    status: RequestStatus
    queue_position: int | None  # 1: next. None once it runs
    num_computed_tokens: int
    num_prompt_tokens: int
    expected_wait_s: float | None = None  # until it starts, at the recent rate; None: unknown
