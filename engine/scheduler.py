"""Decides what each step computes. Knows requests, blocks and time stamps; no device, no clock."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import replace
from typing import NamedTuple

from engine.batch import BlockCopy, ScheduledBatch, ScheduledRequest
from engine.block_room import BlockRoom
from engine.kv.block_moves import MoveOutcome
from engine.kv.hashing import BlockHash
from engine.kv.manager import KVCacheManager, PoolUsage
from engine.kv.tiers import TierUsage, WarmBlock
from engine.request import FinishReason, Request, RequestProgress, RequestStatus
from engine.rope_regimes import ONE_TABLE, RopeRegimes
from engine.roster import Roster
from engine.step_plan import StepPlan
from engine.token_budget import TokenBudget, chunk_length, split_budget

_OUTPUT_TOKEN_SERVICE = 2.0  # of fair service, in prompt tokens


class PromptWork(NamedTuple):
    """A request with prompt tokens to compute, running or about to start."""

    request: Request
    num_cached_tokens: int  # computed already, or expected from the cache

    @property
    def num_remaining(self) -> int:
        return self.request.num_tokens - self.num_cached_tokens


class Scheduler:
    """Continuous batching: every decoding request each step, prompt chunks in the rest.

    A request needs num_tokens - num_computed_tokens positions computed and samples in the step that
    reaches num_tokens; after a preemption prompt and output are computed again the same way, mostly
    from the prefix cache, and so they are when a sequence has outgrown its rotary table: a prefill
    like any other, in the slot it has. Single-threaded.

    Progress: the oldest running request is never preempted for blocks, and admission refused what
    cannot fit the pool alone, so the oldest always ends.
    """

    def __init__(
        self,
        *,
        kv: KVCacheManager,
        budget: TokenBudget,
        max_num_seqs: int,
        rope: RopeRegimes = ONE_TABLE,
    ) -> None:
        self._kv = kv
        self._budget = budget
        self._max_num_seqs = max_num_seqs
        self._roster = Roster(kv, rope)
        self.token_budget = 0  # of the newest step

    @property
    def num_running(self) -> int:
        return self._roster.num_running

    @property
    def num_waiting(self) -> int:
        return self._roster.num_waiting

    @property
    def num_preemptions(self) -> int:
        return self._roster.num_preemptions

    @property
    def started(self) -> list[Request]:
        """Requests that began, for the first time, in the newest step."""
        return self._roster.started

    def pool_usage(self) -> PoolUsage:
        return self._kv.usage()

    def tier_usage(self) -> TierUsage:
        return self._kv.tiers.usage()

    def progress(self) -> dict[str, RequestProgress]:
        return self._roster.progress()

    def add(self, request: Request) -> None:
        self._roster.add(request)

    def fetch(self, request: Request, now_s: float) -> None:
        """Begin to read from disk what a waiting request can use."""
        self._kv.fetch(request.request_id, request.token_ids, request.kv_namespace, now_s)

    def num_ahead(self, request: Request) -> int:
        """Waiting requests that get a slot before this one."""
        return self._roster.waiting().index(request)

    def expired(self, now_s: float) -> list[Request]:
        """Requests past their deadline; the caller ends them."""
        return self._roster.expired(now_s)

    def schedule(self, now_s: float) -> ScheduledBatch:
        """Plan the next step. Empty only where nobody has work that need not wait for the disk."""
        self._roster.started.clear()
        self._roster.cross_regimes()
        self._kv.tiers.collect()
        plan = StepPlan()
        self._plan_decodes(plan)
        self._plan_prompts(plan, now_s)
        if not plan and self.num_running:
            self._plan_oldest(plan)
        return self._batch_of(plan)

    def moved(self, batch: ScheduledBatch, outcome: MoveOutcome) -> ScheduledBatch:
        """The batch's moves have run; returns it without the requests that did not get theirs.

        Those begin again. What could not be loaded is not found any more, so they compute it.
        """
        self._kv.tiers.moved(batch.moves, outcome)
        unfilled = outcome.unfilled_block_ids
        lost = [
            request
            for request in self._roster.running()
            if not unfilled.isdisjoint(self._kv.block_ids(request.request_id))
        ]
        for request in lost:
            self._roster.take_back(request)
        able = tuple(item for item in batch.requests if item.request not in lost)
        return replace(batch, requests=able)

    def advance(self, batch: ScheduledBatch, failed: Container[str] = ()) -> None:
        """The step has run: its positions hold KV now, except those of failed requests."""
        for scheduled in batch.requests:
            num_prompt_tokens = 0 if scheduled.is_decode else scheduled.num_tokens
            service = num_prompt_tokens + _OUTPUT_TOKEN_SERVICE * scheduled.samples
            self._roster.queue.charge(scheduled.request, service)
            if scheduled.request.request_id not in failed:
                scheduled.request.num_computed_tokens = scheduled.start + scheduled.num_tokens

    def start_again(self, batch: ScheduledBatch, unfilled_block_ids: frozenset[int]) -> None:
        """Back to the queue with who counts on these blocks but had no part in the step."""
        if not unfilled_block_ids:
            return
        in_step = {scheduled.request.request_id for scheduled in batch.requests}
        for request in self._roster.running():
            block_ids = self._kv.block_ids(request.request_id)
            if request.request_id not in in_step and not unfilled_block_ids.isdisjoint(block_ids):
                self._roster.preempt(request)

    def observe(self, batch: ScheduledBatch, duration_s: float) -> None:
        """Learn from the duration of a step that ran as planned."""
        self._budget.observe(num_prompt_tokens=batch.num_prompt_tokens, duration_s=duration_s)

    def publish(self, request: Request, num_valid: int) -> None:
        """Whole blocks among the first `num_valid` positions may be reused by others."""
        self._kv.commit(request.request_id, request.token_ids, num_valid)

    def finish(self, request: Request, reason: FinishReason, num_valid: int) -> None:
        """End a request; KV of its first `num_valid` positions stays in the cache."""
        self._roster.finish(request, reason, num_valid)

    def discard(self, request: Request, reason: FinishReason) -> None:
        """End a request whose KV cannot be trusted: nothing of it stays."""
        self._roster.discard(request, reason)

    def of_conversations(self, conversations: Collection[str]) -> list[Request]:
        """Live requests that belong to these."""
        return self._roster.of_conversations(conversations)

    def forget_conversations(self, conversations: Collection[str]) -> None:
        """Remove the KV that only these have used, but none that is in use."""
        self._kv.forget_conversations(conversations)

    def warm_blocks(self) -> Iterator[WarmBlock]:
        """What to keep when the engine stops, most worth it first."""
        return self._kv.warm_blocks()

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong."""
        self._kv.check_integrity()
        self._roster.check_integrity()
        assert self.num_running <= self._max_num_seqs, "more requests run than there are slots"

    # --- one step, in order

    def _plan_decodes(self, plan: StepPlan) -> None:
        """One token for every request that only lacks its newest."""
        for request in self._roster.running():
            # an earlier one may have taken this one's blocks
            while request.status is RequestStatus.RUNNING and _is_decoding(request):
                if self._kv.extend(request.request_id, request.num_tokens):
                    plan.add(request, 1)
                    break
                self._preempt(self._roster.memory_victim(), plan)

    def _plan_prompts(self, plan: StepPlan, now_s: float) -> None:
        starting = self._startable(plan, now_s)
        prefilling = [
            PromptWork(request, request.num_computed_tokens)
            for request in self._roster.running()
            if not _is_decoding(request)
        ]
        budget = self._budget.prompt_tokens(num_decoding=len(plan))
        self.token_budget = len(plan) + budget
        work = self._head_first(prefilling + starting)
        shares = split_budget([item.num_remaining for item in work], budget)
        for index, (item, share) in enumerate(zip(work, shares, strict=True)):
            self._plan_chunk(plan, item, share, now_s, is_head=index == 0)

    def _startable(self, plan: StepPlan, now_s: float) -> list[PromptWork]:
        """Waiting requests that get a slot in this step, in fair order.

        One whose next block is being computed by another in this step waits for that, one whose
        blocks are being read from disk for those.
        """
        if not self.num_waiting:
            return []
        budget = self._budget.prompt_tokens(num_decoding=len(plan))
        computing = self._hashes_to_compute(budget)
        room = BlockRoom(self._kv, self._roster.running())
        found: list[PromptWork] = []
        for request in self._roster.waiting()[: 2 * self._max_num_seqs]:
            if self._kv.tiers.is_fetching(request.request_id, now_s):
                continue
            has_slot = self.num_running + len(found) < self._max_num_seqs
            chosen = [item.request for item in found]
            victim = None if has_slot else self._roster.slot_victim(request, chosen)
            if not has_slot and victim is None:
                break
            match = self._kv.match_prefix(
                request.request_id, request.token_ids, request.kv_namespace
            )
            if match.next_hash in computing:
                continue
            if not room.take(request, match):
                break
            if victim is not None:
                self._preempt(victim, plan)
            found.append(PromptWork(request, match.num_tokens))
            computing |= self._upcoming(request, match.num_tokens + budget)
        return found

    def _plan_chunk(
        self, plan: StepPlan, work: PromptWork, share: int, now_s: float, *, is_head: bool
    ) -> None:
        """A chunk of at most `share` tokens; a request that waits starts, if it gets one."""
        request = work.request
        if request.status is RequestStatus.WAITING:
            expected = self._chunk_length(request, work.num_cached_tokens, share, is_head)
            if not expected or not self._roster.start(request, now_s):
                return
        wanted = self._chunk_length(request, request.num_computed_tokens, share, is_head)
        num_tokens = self._cover(request, wanted)
        if num_tokens:
            plan.add(request, num_tokens)

    def _plan_oldest(self, plan: StepPlan) -> None:
        """Nobody got a block: the oldest takes them from the others."""
        request = self._roster.running()[0]
        budget = self._budget.prompt_tokens(num_decoding=0)
        wanted = min(budget, request.num_tokens - request.num_computed_tokens)
        while not (num_tokens := self._cover(request, wanted)):
            self._preempt(self._roster.memory_victim(), plan)
        plan.add(request, num_tokens)

    def _batch_of(self, plan: StepPlan) -> ScheduledBatch:
        moves = self._kv.tiers.take_moves()
        if not plan:
            return ScheduledBatch((), moves=moves)
        requests = tuple(
            ScheduledRequest(
                request=chunk.request,
                start=chunk.request.num_computed_tokens,
                num_tokens=chunk.num_tokens,
                block_ids=self._kv.block_ids(chunk.request.request_id),
                samples=chunk.samples,
            )
            for chunk in plan.chunks()
        )
        copies = tuple(BlockCopy(*copy) for copy in self._kv.take_copies())
        return ScheduledBatch(requests, copies, moves)

    # --- parts of the above

    def _preempt(self, request: Request, plan: StepPlan) -> None:
        plan.drop(request)
        self._roster.preempt(request)

    def _head_first(self, work: list[PromptWork]) -> list[PromptWork]:
        """The least served user's first request leads; the rest keeps its order."""
        if not work:
            return []
        service = self._roster.queue.service
        head = min(work, key=lambda item: (service(item.request), item.request.arrival_s))
        return [head, *(item for item in work if item is not head)]

    def _hashes_to_compute(self, budget: int) -> set[BlockHash]:
        """Of the whole blocks that running prompts may reach in this step."""
        hashes: set[BlockHash] = set()
        for request in self._roster.running():
            if not _is_decoding(request):
                hashes |= self._upcoming(request, request.num_computed_tokens + budget)
        return hashes

    def _upcoming(self, request: Request, end: int) -> set[BlockHash]:
        end = min(end, request.num_tokens)
        return set(
            self._kv.upcoming_hashes(
                request.request_id, request.token_ids, request.kv_namespace, end
            )
        )

    def _chunk_length(self, request: Request, start: int, share: int, is_head: bool) -> int:
        length = chunk_length(start, request.num_tokens - start, share, self._kv.block_size)
        return share if is_head and not length else length

    def _cover(self, request: Request, num_tokens: int) -> int:
        """Get blocks for as many of the next `num_tokens` positions as there is room for."""
        request_id, start = request.request_id, request.num_computed_tokens
        if self._kv.extend(request_id, start + num_tokens):
            return num_tokens
        usage = self._kv.usage()
        num_blocks = len(self._kv.block_ids(request_id)) + usage.num_free + usage.num_cached
        num_covered = min(num_tokens, num_blocks * self._kv.block_size - start)
        if num_covered > 0 and self._kv.extend(request_id, start + num_covered):
            return num_covered
        return 0


def _is_decoding(request: Request) -> bool:
    return request.num_tokens - request.num_computed_tokens == 1
