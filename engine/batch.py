"""One step's plan, from the scheduler to the runner, and what the runner answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from engine.kv.block_moves import NO_MOVES, BlockMoves, Fill, Load, Save
from engine.request import Request, TokenLogprobs


class ScheduledRequest(NamedTuple):
    """Compute positions [start, start + num_tokens) of a request in this step."""

    request: Request
    start: int
    num_tokens: int
    block_ids: tuple[int, ...]  # the block table, covering at least start + num_tokens positions
    samples: bool  # True: the last of these positions is the request's last, sample after it

    @property
    def is_decode(self) -> bool:
        """Only the newest token lacks its KV."""
        return self.samples and self.num_tokens == 1


class BlockCopy(NamedTuple):
    """Copy the first `num_tokens` slots of a block before the step runs."""

    source_block_id: int
    target_block_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ScheduledBatch:
    requests: tuple[ScheduledRequest, ...]
    block_copies: tuple[BlockCopy, ...] = ()
    moves: BlockMoves = NO_MOVES  # to run before anything else, even where nobody has work

    @property
    def num_tokens(self) -> int:
        return sum(scheduled.num_tokens for scheduled in self.requests)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(item.num_tokens for item in self.requests if not item.is_decode)

    def __bool__(self) -> bool:
        return bool(self.requests)


class SampledToken(NamedTuple):
    token_id: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """By request id. `failed` names requests whose own numbers went wrong, with the reason."""

    sampled: Mapping[str, SampledToken]
    failed: Mapping[str, str] = field(default_factory=dict)


class BlockMover(Protocol):
    """Copies whole blocks between the device and host slots.

    Nothing here waits for the device where it can be avoided. An exception means that nothing of
    that call can be relied on.
    """

    @property
    def num_slots(self) -> int: ...

    @property
    def block_nbytes(self) -> int: ...

    def save(self, saves: Sequence[Save]) -> None:
        """The blocks as they are now, whatever is written to them later."""

    def load(self, loads: Sequence[Load]) -> None: ...

    def read_slots(self, slots: Sequence[int]) -> list[bytes]: ...

    def fill_slots(self, fills: Sequence[Fill]) -> None: ...

    def read_blocks(self, block_ids: Sequence[int]) -> list[bytes]: ...


class Runner(Protocol):
    """Device work of one step. The only thing EngineCore knows of the model."""

    @property
    def mover(self) -> BlockMover: ...

    def execute(self, batch: ScheduledBatch) -> StepResult:
        """Copy blocks, run the forward pass, sample where asked.

        An exception means that nothing of this step counts; the caller may run the step's requests
        again, one by one.
        """

    def check_device(self) -> None:
        """Use the device a little, after a step has failed; raises if even that fails."""
