"""Requests, a scheduler, a core and a whole engine around the FakeRunner."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from engine.batch import ScheduledBatch
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.engine import Engine, EngineState, RequestStream
from engine.in_process import InProcessEngine
from engine.kv.disk_tier import DiskTier
from engine.kv.manager import KVCacheManager
from engine.kv.tiers import Tiers
from engine.metrics import MetricsRecorder
from engine.request import FinishReason, GenerationRequest, Request, RequestOutput
from engine.rope_regimes import RopeRegimes
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.text.detokenizer import IncrementalDetokenizer
from engine.token_budget import TokenBudget
from tests.factories import make_kv_manager, make_model_info
from tests.fake_runner import ByteTokenizer, FakeClock, FakeRunner


def make_generation_request(
    request_id: str = "r",
    prompt: Sequence[int] = (1, 2, 3),
    *,
    user: str | None = None,
    timeout_s: float | None = None,
    cache_salt: str = "",
    conversation: str = "",
    **sampling: Any,
) -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(**sampling),
        user=user,
        timeout_s=timeout_s,
        cache_salt=cache_salt,
        conversation=conversation,
    )


def make_request(
    request_id: str = "r",
    prompt: Sequence[int] = (1, 2, 3),
    *,
    max_tokens: int = 4,
    user: str | None = None,
    cache_salt: str = "",
    conversation: str = "",
    arrival_s: float = 0.0,
    deadline_s: float | None = None,
    **sampling: Any,
) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(max_tokens=max_tokens, **sampling),
        max_tokens=max_tokens,
        user=user,
        cache_salt=cache_salt,
        conversation=conversation,
        arrival_s=arrival_s,
        deadline_s=deadline_s,
    )


class FixedBudget(TokenBudget):
    """The same number of prompt tokens in every step."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__(target_s=1.0, max_tokens=num_tokens)
        self._num_tokens = num_tokens

    def prompt_tokens(self, num_decoding: int) -> int:
        return self._num_tokens


def make_scheduler(
    *,
    kv: KVCacheManager | None = None,
    prompt_tokens: int = 16,
    max_num_seqs: int = 8,
    original_max_len: int | None = None,
) -> Scheduler:
    """Blocks of 4 tokens, 64 of them, if no `kv` is given."""
    return Scheduler(
        kv=kv or make_kv_manager(num_blocks=64),
        budget=FixedBudget(prompt_tokens),
        max_num_seqs=max_num_seqs,
        rope=RopeRegimes(original_max_len),
    )


def run_batch(scheduler: Scheduler, batch: ScheduledBatch, token_id: int = 7) -> None:
    """The step ran: mark it computed, and give `token_id` to each request that samples."""
    scheduler.advance(batch)
    for scheduled in batch.requests:
        scheduler.publish(scheduled.request, scheduled.request.num_computed_tokens)
        if scheduled.samples:
            scheduled.request.append(token_id)


def plan_of(batch: ScheduledBatch) -> dict[str, int]:
    """Tokens by request id, in the planned order."""
    return {item.request.request_id: item.num_tokens for item in batch.requests}


class CoreDriver:
    """A core on a FakeRunner, and all that came out of it."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        prompt_tokens: int = 64,
        max_num_seqs: int = 8,
        original_max_len: int | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
        metrics: MetricsRecorder | None = None,
        num_host_slots: int = 0,
        disk: DiskTier | None = None,
    ) -> None:
        self.kv = make_kv_manager(
            num_blocks=num_blocks,
            block_size=block_size,
            tiers=Tiers(num_host_slots, disk, num_host_slots),
        )
        self.scheduler = make_scheduler(
            kv=self.kv,
            prompt_tokens=prompt_tokens,
            max_num_seqs=max_num_seqs,
            original_max_len=original_max_len,
        )
        self.runner = FakeRunner(block_size, RopeRegimes(original_max_len), num_host_slots)
        self.clock = FakeClock()
        self.core = EngineCore(
            scheduler=self.scheduler,
            runner=self.runner,
            make_detokenizer=make_detokenizer,
            metrics=metrics or make_metrics(),
            eos_token_ids=eos_token_ids,
            clock=self.clock,
        )
        self.outputs: dict[str, list[RequestOutput]] = defaultdict(list)

    def add(self, request_id: str, prompt: Sequence[int] = (1, 2, 3), **values: Any) -> Request:
        arrival_s = values.pop("arrival_s", self.clock.now_s)
        request = make_request(request_id, prompt, arrival_s=arrival_s, **values)
        self.core.add(request)
        return request

    def abort(self, request_id: str) -> None:
        output = self.core.abort(request_id)
        if output is not None:
            self.outputs[request_id].append(output)

    def step(self, seconds: float = 0.0) -> None:
        for output in self.core.step():
            self.outputs[output.request_id].append(output)
        self.clock.now_s += seconds

    def run(self) -> None:
        """Step until nobody has work; every step must do some."""
        while self.core.has_work:
            num_batches = len(self.runner.batches)
            num_ended = self.num_ended
            self.step()
            assert len(self.runner.batches) > num_batches or self.num_ended > num_ended
        self.core.check_integrity()

    @property
    def num_ended(self) -> int:
        return sum(self.reason(request_id) is not None for request_id in list(self.outputs))

    def tokens(self, request_id: str) -> list[int]:
        return [token for output in self.outputs[request_id] for token in output.token_ids]

    def text(self, request_id: str) -> str:
        return "".join(output.text for output in self.outputs[request_id])

    def last(self, request_id: str) -> RequestOutput:
        return self.outputs[request_id][-1]

    def reason(self, request_id: str) -> FinishReason | None:
        return self.outputs[request_id][-1].finish_reason if self.outputs[request_id] else None


def make_detokenizer(sampling: SamplingParams) -> IncrementalDetokenizer:
    return IncrementalDetokenizer(ByteTokenizer(), stop=sampling.stop)


def make_metrics() -> MetricsRecorder:
    return MetricsRecorder(max_num_seqs=8, block_size=4, max_model_len=512)


def make_engine(
    runner: FakeRunner | None = None,
    *,
    load: Callable[..., Any] | None = None,
    num_blocks: int = 64,
    max_model_len: int = 256,
    num_host_slots: int = 0,
    **config: Any,
) -> InProcessEngine:
    """An engine on a FakeRunner with blocks of 8 tokens, not started yet."""
    loaded = SimpleNamespace(
        runner=runner or FakeRunner(8, num_host_slots=num_host_slots),
        info=make_model_info(
            block_size=8,
            num_blocks=num_blocks,
            max_model_len=max_model_len,
            eos_token_ids=frozenset(),
        ),
        tokenizer=ByteTokenizer(),
    )
    return InProcessEngine(EngineConfig(**config), load or (lambda config, report: loaded))


def start_engine(runner: FakeRunner | None = None, **values: Any) -> InProcessEngine:
    """The same, once it is ready."""
    engine = make_engine(runner, **values)
    engine.start()
    wait_until(lambda: engine.status().state is not EngineState.LOADING)
    return engine


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true in time"
        time.sleep(0.001)


def submit(engine: Engine, request_id: str = "r", **values: Any) -> RequestStream:
    prompt = values.pop("prompt", range(40, 60))
    return engine.submit(make_generation_request(request_id, prompt, **values))


def read_all(stream: RequestStream) -> RequestOutput:
    """All outputs of a stream as one."""
    outputs = list(stream)
    token_ids = tuple(token_id for output in outputs for token_id in output.token_ids)
    return RequestOutput(
        request_id=stream.request_id,
        token_ids=token_ids,
        finish_reason=outputs[-1].finish_reason,
        error=outputs[-1].error,
    )


class Gate:
    """Holds every step until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.reached = threading.Event()

    def __call__(self, batch: ScheduledBatch) -> None:
        self.reached.set()
        assert self.opened.wait(10)
