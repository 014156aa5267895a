"""Who waits and who runs. The one place that changes a request's status; it plans nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from engine.errors import OutOfBlocksError
from engine.fair_queue import FairQueue, UserKey, user_key
from engine.kv.manager import KVCacheManager
from engine.request import FinishReason, Request, RequestProgress, RequestStatus
from engine.rope_regimes import RopeRegimes


class Roster:
    """Every live request is in exactly one place: the queue, or a slot with a block table."""

    def __init__(self, kv: KVCacheManager, rope: RopeRegimes) -> None:
        self._kv = kv
        self._rope = rope
        self._requests: dict[str, Request] = {}
        self._running: dict[str, Request] = {}
        self.queue = FairQueue()
        self.started: list[Request] = []  # for the first time, since the list was last cleared
        self.num_preemptions = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._requests) - len(self._running)

    def waiting(self) -> list[Request]:
        """In the order in which they get slots."""
        return self.queue.order(self._num_running_by_user())

    def running(self) -> list[Request]:
        """Oldest first."""
        return sorted(self._running.values(), key=lambda request: request.arrival_s)

    def expired(self, now_s: float) -> list[Request]:
        return [
            request
            for request in self._requests.values()
            if request.deadline_s is not None and now_s >= request.deadline_s
        ]

    def progress(self) -> dict[str, RequestProgress]:
        positions = {
            request.request_id: position for position, request in enumerate(self.waiting(), start=1)
        }
        return {
            request_id: RequestProgress(
                status=request.status,
                queue_position=positions.get(request_id),
                num_computed_tokens=min(request.num_computed_tokens, request.num_prompt_tokens),
                num_prompt_tokens=request.num_prompt_tokens,
            )
            for request_id, request in self._requests.items()
        }

    def add(self, request: Request) -> None:
        assert request.request_id not in self._requests, f"{request.request_id} is there already"
        request.rope_regime = self._rope.regime(request.num_tokens)
        self._requests[request.request_id] = request
        self.queue.add(request)

    def start(self, request: Request, now_s: float) -> bool:
        """Give a waiting request a block table; False when no block is free for it."""
        num_cached = self._kv.start(
            request.request_id, request.token_ids, request.kv_namespace, request.conversation
        )
        if num_cached is None:
            return False
        self.queue.take(request)
        self._running[request.request_id] = request
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_cached
        if request.first_scheduled_s is None:
            request.first_scheduled_s = now_s
            request.num_cached_tokens = num_cached
            restored = self._kv.restored(request.request_id)
            request.num_host_tokens = restored.num_host_blocks * self._kv.block_size
            request.num_disk_tokens = restored.num_disk_blocks * self._kv.block_size
            self.started.append(request)
        return True

    def preempt(self, request: Request) -> None:
        """Back to the front of its queue; its blocks stay in the cache while there is room."""
        self._kv.free(request.request_id, request.token_ids, request.num_computed_tokens)
        self._put_back(request)

    def cross_regimes(self) -> None:
        """Whoever has outgrown its rotary table goes on under the next one, in the same slot.

        Its KV so far stays in the cache for others; its own it has to compute again, less what of
        it is cached under the new regime. To be called before a step is planned.
        """
        for request in self.running():
            regime = self._rope.regime(request.num_tokens)
            if request.rope_regime != regime:
                self._cross(request, regime)

    def take_back(self, request: Request) -> None:
        """Like preempt, for one whose cached tokens have turned out not to be there.

        The figures of a start that went well before stay what they were.
        """
        self.preempt(request)
        if request in self.started:
            request.num_cached_tokens = request.num_host_tokens = request.num_disk_tokens = 0

    def of_conversations(self, conversations: Collection[str]) -> list[Request]:
        return [item for item in self._requests.values() if item.conversation in conversations]

    def finish(self, request: Request, reason: FinishReason, num_valid: int) -> None:
        """End a request; KV of its first `num_valid` positions stays in the cache."""
        if request.status is RequestStatus.RUNNING:
            num_valid = min(num_valid, request.num_computed_tokens)
            self._kv.free(request.request_id, request.token_ids, num_valid)
        self._leave(request, reason)

    def discard(self, request: Request, reason: FinishReason) -> None:
        """End a request whose KV cannot be trusted: nothing of it stays."""
        if request.status is RequestStatus.RUNNING:
            self._kv.discard(request.request_id)
        self._leave(request, reason)

    def memory_victim(self) -> Request:
        """Who gives up blocks: the youngest of the user with most running, never the oldest."""
        candidates = self.running()[1:]
        if not candidates:
            raise OutOfBlocksError("A single request ran out of KV blocks; admission let it pass.")
        count = self._num_running_by_user()
        # max() keeps the first of equals: look at the youngest first
        return max(reversed(candidates), key=lambda request: count[user_key(request)])

    def slot_victim(self, request: Request, chosen: Collection[Request]) -> Request | None:
        """Who gives up a slot to a waiting request: a user with several, to one with none.

        `chosen` are about to start and count as running.
        """
        count = self._num_running_by_user()
        user = user_key(request)
        has_slot = count[user] > 0 or any(user_key(other) == user for other in chosen)
        if has_slot or max(count.values(), default=0) < 2:
            return None
        return max(reversed(self.running()), key=lambda other: count[user_key(other)])

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong."""
        self.queue.check_integrity(self._num_running_by_user())
        held: set[int] = set()
        for request_id, request in self._requests.items():
            is_running = request_id in self._running
            assert is_running != (request in self.queue), f"{request_id} is nowhere or twice"
            assert is_running == (request.status is RequestStatus.RUNNING), request.status
            regime = self._rope.regime(request.num_tokens)
            assert is_running or request.rope_regime == regime, f"{request_id} waits to cross"
            if is_running:
                block_ids = self._kv.block_ids(request_id)
                assert len(block_ids) * self._kv.block_size >= request.num_computed_tokens
                held.update(block_ids)
        assert self._running.keys() <= self._requests.keys(), "an ended request still runs"
        num_in_use = self._kv.usage().num_in_use
        assert num_in_use == len(held), f"{num_in_use} blocks in use, {len(held)} in tables"

    def _cross(self, request: Request, regime: str) -> None:
        num_computed = request.num_computed_tokens
        # First the old blocks: the pool need not hold a sequence twice.
        self._kv.free(request.request_id, request.token_ids, num_computed)
        request.rope_regime = regime
        num_cached = self._kv.start(
            request.request_id, request.token_ids, request.kv_namespace, request.conversation
        )
        request.num_recomputed_tokens += max(0, num_computed - (num_cached or 0))
        if num_cached is None:  # all its blocks are others' too, and none is free
            self._put_back(request)
        else:
            request.num_computed_tokens = num_cached

    def _put_back(self, request: Request) -> None:
        del self._running[request.request_id]
        request.status = RequestStatus.WAITING
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.queue.put_back(request)

    def _leave(self, request: Request, reason: FinishReason) -> None:
        if request.status is RequestStatus.RUNNING:
            del self._running[request.request_id]
        else:
            self.queue.take(request)
            self._kv.forget(request.request_id)
        del self._requests[request.request_id]
        self.queue.leave(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason

    def _num_running_by_user(self) -> Counter[UserKey]:
        return Counter(user_key(request) for request in self._running.values())
