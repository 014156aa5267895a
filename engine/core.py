"""EngineCore.step(): schedule, run, update. Single-threaded, no locks, no torch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from engine.batch import Runner, ScheduledBatch, ScheduledRequest
from engine.block_keeper import BlockKeeper
from engine.metrics import Gauges, MetricsRecorder, StepRecord
from engine.reply import Reply
from engine.request import FinishReason, Request, RequestOutput, RequestProgress
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.stats import EngineStats
from engine.step_runner import StepOutcome, StepRunner
from engine.text.detokenizer import IncrementalDetokenizer

logger = logging.getLogger(__name__)

_BROKEN = "This reply could not be continued because of an internal error. Please try again."


class EngineCore:
    """All live requests, from `add` to their last output. Called from one thread only."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        runner: Runner,
        make_detokenizer: Callable[[SamplingParams], IncrementalDetokenizer],
        metrics: MetricsRecorder,
        eos_token_ids: frozenset[int],
        clock: Callable[[], float] = time.monotonic,
        keeper: BlockKeeper | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._step_runner = StepRunner(runner)
        self._make_detokenizer = make_detokenizer
        self._metrics = metrics
        self._eos_token_ids = eos_token_ids
        self._clock = clock
        self._keeper = keeper
        self._replies: dict[str, Reply] = {}
        self._had_nothing_to_do = False  # in the newest step

    @property
    def has_work(self) -> bool:
        return bool(self._replies)

    def wait(self, timeout_s: float) -> None:
        """Return at once, but where all requests wait for the disk: then when it has news."""
        if self._had_nothing_to_do and self._replies and self._keeper is not None:
            self._keeper.wait(timeout_s)

    def add(self, request: Request) -> None:
        """Queue a request that admission has accepted."""
        detokenizer = self._make_detokenizer(request.sampling)
        self._replies[request.request_id] = Reply(request, detokenizer, self._eos_token_ids)
        request.num_running_at_arrival = self._scheduler.num_running
        self._scheduler.add(request)
        self._scheduler.fetch(request, self._clock())
        request.num_ahead = self._scheduler.num_ahead(request)
        self._record(self._metrics.request_added, request)

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now, wherever it stands; None if it is not live."""
        reply = self._replies.get(request_id)
        return None if reply is None else self._end(reply, FinishReason.ABORT)

    def abort_all(self) -> list[RequestOutput]:
        return [self._end(reply, FinishReason.ABORT) for reply in list(self._replies.values())]

    def forget(self, conversations: Collection[str]) -> list[RequestOutput]:
        """End these conversations' requests, then remove the KV that only they have used."""
        ended = [
            self._end(self._replies[request.request_id], FinishReason.ABORT)
            for request in self._scheduler.of_conversations(conversations)
        ]
        self._scheduler.forget_conversations(conversations)
        return ended

    def close(self, *, keep_warm: bool) -> None:
        """After the last step; what is worth it is kept on disk first, where there is one."""
        if self._keeper is None:
            return
        if keep_warm:
            self._keeper.keep(self._scheduler.warm_blocks())
        self._keeper.close()

    def step(
        self, announce: Callable[[Sequence[Request]], None] = lambda started: None
    ) -> list[RequestOutput]:
        """One step for everybody; returns a delta for every request that got something.

        Args:
            announce: gets the requests that run for the first time, before they do: should the
                device take the whole process along, it is known who was there.

        Raises:
            DeviceLostError: no step will work any more.
        """
        outputs = self._end_expired()
        started_s = self._clock()
        batch = self._scheduler.schedule(started_s)
        if self._scheduler.started:
            announce(self._scheduler.started)
        if batch.moves:
            batch = self._scheduler.moved(batch, self._step_runner.move(batch.moves))
            started_s = self._clock()  # the budget learns how long computing takes
        for request in self._scheduler.started:
            self._record(self._metrics.request_started, request)
        self._had_nothing_to_do = not batch
        if batch:
            outcome = self._step_runner.run(batch)
            outputs += self._update(batch, outcome, started_s)
        elif batch.block_copies:  # all that was planned counted on blocks that did not come
            self._scheduler.start_again(batch, self._step_runner.copy(batch.block_copies))
        return outputs

    def progress(self) -> dict[str, RequestProgress]:
        return self._scheduler.progress()

    def stats(self) -> EngineStats:
        scheduler = self._scheduler
        gauges = Gauges(
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            token_budget=scheduler.token_budget,
            pool=scheduler.pool_usage(),
            num_preemptions=scheduler.num_preemptions,
            tiers=scheduler.tier_usage(),
        )
        return self._metrics.snapshot(self._clock(), gauges)

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong."""
        self._scheduler.check_integrity()
        num_live = self._scheduler.num_running + self._scheduler.num_waiting
        assert num_live == len(self._replies), f"{num_live} scheduled, {len(self._replies)} live"

    def _update(
        self, batch: ScheduledBatch, outcome: StepOutcome, started_s: float
    ) -> list[RequestOutput]:
        now_s = self._clock()
        self._scheduler.advance(batch, outcome.failed)
        self._scheduler.start_again(batch, outcome.unfilled_block_ids)
        if not outcome.was_repeated:
            self._scheduler.observe(batch, now_s - started_s)
        _count_steps(batch)
        updated = [self._update_one(scheduled, outcome, now_s) for scheduled in batch.requests]
        self._record(
            self._metrics.step_ended,
            StepRecord(batch, len(outcome.sampled), now_s - started_s, now_s, outcome.was_repeated),
        )
        return [output for output in updated if output is not None]

    def _update_one(
        self, scheduled: ScheduledRequest, outcome: StepOutcome, now_s: float
    ) -> RequestOutput | None:
        request = scheduled.request
        reply = self._replies[request.request_id]
        error = outcome.failed.get(request.request_id)
        if error is not None:
            return self._end(reply, FinishReason.ERROR, error, keep_blocks=False)
        if not scheduled.samples:
            self._scheduler.publish(request, request.num_computed_tokens)
            return None
        previous_s = request.last_token_s
        try:
            output = reply.append(outcome.sampled[request.request_id], now_s)
        except Exception:
            logger.exception("The reply to request %s could not be continued", request.request_id)
            return self._end(reply, FinishReason.ERROR, _BROKEN, keep_blocks=False)
        self._record(self._metrics.token_sampled, request, previous_s, now_s)
        if output.finish_reason is None:
            num_valid = min(request.num_computed_tokens, reply.num_accepted_positions)
            self._scheduler.publish(request, num_valid)
        else:
            self._leave(reply, output.finish_reason, now_s)
        return output

    def _end_expired(self) -> list[RequestOutput]:
        return [
            self._end(self._replies[request.request_id], FinishReason.ERROR, _timed_out(request))
            for request in self._scheduler.expired(self._clock())
        ]

    def _end(
        self,
        reply: Reply,
        reason: FinishReason,
        error: str | None = None,
        *,
        keep_blocks: bool = True,
    ) -> RequestOutput:
        now_s = self._clock()
        output = reply.end(reason, now_s, error)
        self._leave(reply, reason, now_s, keep_blocks=keep_blocks)
        return output

    def _leave(
        self, reply: Reply, reason: FinishReason, now_s: float, *, keep_blocks: bool = True
    ) -> None:
        request = reply.request
        if keep_blocks:
            self._scheduler.finish(request, reason, reply.num_accepted_positions)
        else:
            self._scheduler.discard(request, reason)
        del self._replies[request.request_id]
        self._record(self._metrics.request_ended, request, now_s)

    def _record(self, record: Callable[..., None], *values: Any) -> None:
        """Figures are never worth a failed request."""
        try:
            record(*values)
        except Exception:
            logger.exception("A figure could not be recorded")


def _count_steps(batch: ScheduledBatch) -> None:
    num_requests = len(batch.requests)
    for scheduled in batch.requests:
        request = scheduled.request
        if scheduled.is_decode and request.output_token_ids:
            request.num_decode_steps += 1
            request.num_decode_step_requests += num_requests
        else:
            request.num_prefill_steps += 1


def _timed_out(request: Request) -> str:
    limit_s = (request.deadline_s or request.arrival_s) - request.arrival_s
    return f"The time limit of {limit_s:g} s is over; what was written until then is kept."
