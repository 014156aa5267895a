"""Runs a step so that a failure stays with the requests it belongs to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from engine.batch import BlockCopy, Runner, SampledToken, ScheduledBatch, ScheduledRequest
from engine.errors import DeviceLostError
from engine.kv.block_moves import BlockMoves, MoveOutcome

_Move = TypeVar("_Move")

logger = logging.getLogger(__name__)

_FAILED = "The model failed while computing this reply. Please try again."
_LOST = "The device that computes has failed and does not work any more."


class StepOutcome(NamedTuple):
    """Like StepResult, and whether anything had to be run again."""

    sampled: dict[str, SampledToken]
    failed: dict[str, str]
    was_repeated: bool
    unfilled_block_ids: frozenset[int] = frozenset()  # copies into these did not happen


class StepRunner:
    """Repeats a failed step request by request; only those that fail again are failed.

    Repeating is safe: a step only writes positions that are not computed yet. Block copies run as a
    step of their own, before, because their targets are written later.

    Some faults of a device stay: everything fails from then on. Each failure is therefore followed
    by a check of the device, and if that fails too, `run` raises DeviceLostError.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def move(self, moves: BlockMoves) -> MoveOutcome:
        """Move blocks, each kind once and in order: what fails is not done.

        Saves are never repeated, since the step that follows writes their blocks. Loads may be.
        """
        mover = self._runner.mover
        payloads: dict[int, bytes] = {}
        failed_slots: set[int] = set()

        def spill(slots: Sequence[int]) -> None:
            payloads.update(zip(slots, mover.read_slots(slots), strict=True))

        self._try_moves(spill, [spill.slot for spill in moves.spills])
        if not self._try_moves(mover.fill_slots, moves.fills):
            failed_slots.update(fill.slot for fill in moves.fills)
        if not self._try_moves(mover.save, moves.saves):
            failed_slots.update(save.slot for save in moves.saves)
        loads = [load for load in moves.loads if load.slot not in failed_slots]
        if not self._try_moves(mover.load, loads) and not self._try_moves(mover.load, loads):
            loads = []
        unfilled = {load.block_id for load in set(moves.loads).difference(loads)}
        return MoveOutcome(payloads, frozenset(failed_slots), frozenset(unfilled))

    def copy(self, copies: tuple[BlockCopy, ...]) -> frozenset[int]:
        """Run the block copies; answers with the blocks that are not filled even so."""
        if not copies or self._try_copies(copies) or self._try_copies(copies):
            return frozenset()
        return frozenset(copy.target_block_id for copy in copies)

    def run(self, batch: ScheduledBatch) -> StepOutcome:
        unfilled = self.copy(batch.block_copies)
        failed = {
            item.request.request_id: _FAILED
            for item in batch.requests
            if not unfilled.isdisjoint(item.block_ids)
        }
        able = tuple(item for item in batch.requests if item.request.request_id not in failed)
        try:
            result = self._runner.execute(ScheduledBatch(able))
        except Exception:
            logger.exception("A step of %d requests failed; repeating them one by one", len(able))
            self._check_device()
            return self._one_by_one(able, failed)._replace(unfilled_block_ids=unfilled)
        everyone_failed = {**failed, **result.failed}
        return StepOutcome(dict(result.sampled), everyone_failed, bool(failed), unfilled)

    def _one_by_one(
        self, requests: Iterable[ScheduledRequest], failed: dict[str, str]
    ) -> StepOutcome:
        sampled: dict[str, SampledToken] = {}
        for scheduled in requests:
            request_id = scheduled.request.request_id
            try:
                result = self._runner.execute(ScheduledBatch((scheduled,)))
            except Exception:
                logger.exception("Request %s failed alone too and is ended", request_id)
                self._check_device()
                failed[request_id] = _FAILED
            else:
                sampled.update(result.sampled)
                failed.update(result.failed)
        return StepOutcome(sampled, failed, was_repeated=True)

    def _try_copies(self, copies: tuple[BlockCopy, ...]) -> bool:
        try:
            self._runner.execute(ScheduledBatch((), copies))
        except Exception:
            logger.exception("Copying %d KV blocks failed", len(copies))
            self._check_device()
            return False
        return True

    def _try_moves(self, move: Callable[[Sequence[_Move]], None], items: Sequence[_Move]) -> bool:
        try:
            if items:
                move(items)
        except Exception:
            logger.exception("Moving %d KV blocks between the memories failed", len(items))
            self._check_device()
            return False
        return True

    def _check_device(self) -> None:
        try:
            self._runner.check_device()
        except Exception as error:
            raise DeviceLostError(_LOST) from error
