"""A model, a tokenizer and a clock that the engine's tests can see through."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from engine.batch import SampledToken, ScheduledBatch, ScheduledRequest, StepResult
from engine.kv.block_moves import Fill, Load, Save
from engine.rope_regimes import LONG, ONE_TABLE, RopeRegimes


class FakeMover:
    """Host slots for a FakeRunner's blocks; `fault` may raise before a kind of move runs."""

    def __init__(self, slots: dict[tuple[int, int], int], block_size: int, num_slots: int) -> None:
        self.num_slots = num_slots
        self.block_nbytes = 8 * block_size
        self.fault: Callable[[str], None] = lambda kind: None
        self.contents: dict[int, bytes] = {}
        self.calls: list[tuple[str, int]] = []  # kind, number of blocks
        self._slots = slots
        self._block_size = block_size

    def save(self, saves: Sequence[Save]) -> None:
        self._begin("save", len(saves))
        for block_id, slot in saves:
            self.contents[slot] = self._packed(block_id)

    def load(self, loads: Sequence[Load]) -> None:
        self._begin("load", len(loads))
        for slot, block_id in loads:
            values = array("q", self.contents[slot])
            for offset, value in enumerate(values):
                self._slots[block_id, offset] = value

    def read_slots(self, slots: Sequence[int]) -> list[bytes]:
        self._begin("spill", len(slots))
        return [self.contents[slot] for slot in slots]

    def fill_slots(self, fills: Sequence[Fill]) -> None:
        self._begin("fill", len(fills))
        for slot, payload in fills:
            self.contents[slot] = payload

    def read_blocks(self, block_ids: Sequence[int]) -> list[bytes]:
        self._begin("read", len(block_ids))
        return [self._packed(block_id) for block_id in block_ids]

    def _packed(self, block_id: int) -> bytes:
        offsets = range(self._block_size)
        return array("q", [self._slots[block_id, offset] for offset in offsets]).tobytes()

    def _begin(self, kind: str, num_blocks: int) -> None:
        self.fault(kind)
        self.calls.append((kind, num_blocks))


class FakeRunner:
    """A model whose next token follows from what its KV slots hold for the whole prefix.

    Wrong reuse therefore changes the output: see `expected_tokens` for what is right. Another
    `rope` regime makes other values of the same tokens. `forced` gives a request's tokens instead;
    `fault` may raise, and then the step's slots hold garbage.
    """

    vocab_size = 256

    def __init__(
        self, block_size: int, rope: RopeRegimes = ONE_TABLE, num_host_slots: int = 0
    ) -> None:
        self._block_size = block_size
        self._rope = rope
        self._slots: dict[tuple[int, int], int] = {}
        self.mover = FakeMover(self._slots, block_size, num_host_slots)
        self.fault: Callable[[ScheduledBatch], None] = lambda batch: None
        self.forced: dict[str, Sequence[int]] = {}
        self.wrong_numbers: set[str] = set()
        self.is_lost = False  # the device fails for good
        self.batches: list[ScheduledBatch] = []

    @property
    def num_tokens_computed(self) -> int:
        return sum(batch.num_tokens for batch in self.batches)

    def check_device(self) -> None:
        if self.is_lost:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def execute(self, batch: ScheduledBatch) -> StepResult:
        self.check_device()
        for copy in batch.block_copies:
            for offset in range(copy.num_tokens):
                held = self._slots[copy.source_block_id, offset]
                self._slots[copy.target_block_id, offset] = held
        try:
            self.fault(batch)
        except Exception:
            for scheduled in batch.requests:
                self._write_garbage(scheduled)
            raise
        self.batches.append(batch)
        sampled: dict[str, SampledToken] = {}
        for scheduled in batch.requests:
            state = self._compute(scheduled)
            if scheduled.samples:
                sampled[scheduled.request.request_id] = self._sample(scheduled, state)
        failed = {
            scheduled.request.request_id: "The model gave numbers that are not finite."
            for scheduled in batch.requests
            if scheduled.request.request_id in self.wrong_numbers
        }
        return StepResult({key: sampled[key] for key in sampled.keys() - failed.keys()}, failed)

    def expected_tokens(self, prompt: Sequence[int], num_tokens: int, seed: int = 0) -> list[int]:
        token_ids = list(prompt)
        state, num_read, regime = 0, 0, self._rope.regime(len(prompt))
        while len(token_ids) < len(prompt) + num_tokens:
            if self._rope.regime(len(token_ids)) != regime:  # all of it once more
                state, num_read, regime = 0, 0, self._rope.regime(len(token_ids))
            for token_id in token_ids[num_read:]:
                state = _mixed(state, _kv_value(state, token_id, regime))
            num_read = len(token_ids)
            token_ids.append(_mixed(state, seed) % self.vocab_size)
        return token_ids[len(prompt) :]

    def _compute(self, scheduled: ScheduledRequest) -> int:
        token_ids = scheduled.request.token_ids
        regime = scheduled.request.rope_regime
        end = scheduled.start + scheduled.num_tokens
        assert scheduled.samples == (end == len(token_ids))
        assert regime == self._rope.regime(len(token_ids))
        state = 0
        for position in range(end):
            slot = self._slot(scheduled, position)
            if position >= scheduled.start:
                self._slots[slot] = _kv_value(state, token_ids[position], regime)
            state = _mixed(state, self._slots[slot])
        return state

    def _sample(self, scheduled: ScheduledRequest, state: int) -> SampledToken:
        request = scheduled.request
        forced = self.forced.get(request.request_id, ())
        if len(forced) > len(request.output_token_ids):
            return SampledToken(forced[len(request.output_token_ids)])
        return SampledToken(_mixed(state, request.sampling.seed or 0) % self.vocab_size)

    def _write_garbage(self, scheduled: ScheduledRequest) -> None:
        for position in range(scheduled.start, scheduled.start + scheduled.num_tokens):
            self._slots[self._slot(scheduled, position)] = -1

    def _slot(self, scheduled: ScheduledRequest, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_size)
        return scheduled.block_ids[block], offset


def _kv_value(state: int, token_id: int, regime: str) -> int:
    return _mixed(state, token_id + (1 << 20 if regime == LONG else 0))


def _mixed(state: int, value: int) -> int:
    return ((state ^ value) * 0x9E3779B97F4A7C15 + 0x7F4A7C15) >> 7 & 0xFFFFFFFFFFFF


class ByteTokenizer:
    """Token n is the byte n; token 0 is special."""

    added_tokens_decoder: ClassVar[dict[int, Any]] = {0: SimpleNamespace(special=True)}

    def convert_ids_to_tokens(self, ids: int) -> str:
        return chr(ids)

    def decode(
        self,
        token_ids: list[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        kept = (token_id for token_id in token_ids if token_id or not skip_special_tokens)
        return bytes(kept).decode("utf-8", errors="replace")


class FakeClock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s
