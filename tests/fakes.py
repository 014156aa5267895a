"""Stand-ins for what a test machine does not have."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Container, Iterable, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml

from engine.chat import ChatRequest, PreparedChat
from engine.config import ModelInfo
from engine.engine import EngineState, EngineStatus, RequestStream
from engine.errors import EngineNotReadyError
from engine.kv.block_moves import BlockMoves, MoveOutcome
from engine.kv.tail_copies import TailCopy
from engine.request import (
    FinishReason,
    GenerationRequest,
    RequestOutput,
    RequestProgress,
    RequestStatus,
)
from engine.stats import EngineStats
from engine.stream import OutputStream
from engine.text.formatter import ChatPrompt
from tests.factories import make_model_info

if TYPE_CHECKING:
    from engine.text.transcript import Transcript


class FakeKVStorage:
    """For each slot, the prefix that its KV was computed from: what attention would read there."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}
        self._host: dict[int, list[int | None]] = {}

    def move(self, moves: BlockMoves, failed_slots: Container[int] = ()) -> MoveOutcome:
        """Slots that fail hold nothing of use afterwards, and loads from them do not happen."""
        payloads = {slot: pickle.dumps(self._host[slot]) for slot, _, _ in moves.spills}
        for slot, payload in moves.fills:
            self._host[slot] = pickle.loads(payload)
        for block_id, slot in moves.saves:
            offsets = range(self._block_size)
            self._host[slot] = [self._slots.get((block_id, offset)) for offset in offsets]
        for slot in [slot for slot in self._host if slot in failed_slots]:
            self._host[slot] = [None] * self._block_size
        for slot, block_id in moves.loads:
            for offset, value in enumerate(self._host[slot]):
                self._slots[block_id, offset] = -1 if value is None else value
        written = {slot for slot, _ in moves.fills} | {slot for _, slot in moves.saves}
        failed = frozenset(slot for slot in written if slot in failed_slots)
        unfilled = frozenset(load.block_id for load in moves.loads if load.slot in failed)
        return MoveOutcome(payloads, failed, unfilled)

    def copy(self, copies: Iterable[TailCopy]) -> None:
        for copy in copies:
            for offset in range(copy.num_tokens):
                held = self._slots[copy.source_block_id, offset]
                self._slots[copy.target_block_id, offset] = held

    def write(
        self, block_ids: Sequence[int], salt: str, token_ids: Sequence[int], start: int, end: int
    ) -> None:
        prefixes = _prefixes(salt, token_ids[:end])
        for position in range(start, end):
            self._slots[self._slot(block_ids, position)] = prefixes[position]

    def holds(self, block_ids: Sequence[int], salt: str, token_ids: Sequence[int]) -> bool:
        """Whether a table's slots hold the KV of just these tokens, each after the ones before."""
        return all(
            self._slots.get(self._slot(block_ids, position)) == prefix
            for position, prefix in enumerate(_prefixes(salt, token_ids))
        )

    def _slot(self, block_ids: Sequence[int], position: int) -> tuple[int, int]:
        return block_ids[position // self._block_size], position % self._block_size


def _prefixes(salt: str, token_ids: Sequence[int]) -> list[int]:
    chained = accumulate(token_ids, lambda prefix, token: hash((prefix, token)), initial=hash(salt))
    return list(chained)[1:]


class IdleEngine:
    """An engine without a model: its state and readings are what a test sets."""

    def __init__(
        self,
        state: EngineState = EngineState.READY,
        stats: EngineStats | None = None,
        info: ModelInfo | None = None,
    ) -> None:
        self.state = state
        self.reading = stats
        self.info = info
        self.is_started = False
        self.forgotten: list[str] = []

    def start(self) -> None:
        self.is_started = True

    def stop(self) -> None:
        self.is_started = False

    def status(self) -> EngineStatus:
        return EngineStatus(self.state, f"The model is {self.state.value}.")

    def stats(self) -> EngineStats | None:
        return self.reading

    def model_info(self) -> ModelInfo:
        if self.info is None:
            raise EngineNotReadyError("The model is still loading: try again shortly.")
        return self.info

    def submit(self, request: GenerationRequest) -> RequestStream:
        raise EngineNotReadyError("The model is still loading: try again shortly.")

    def abort(self, request_id: str) -> None:
        pass

    def forget(self, conversations: Sequence[str]) -> None:
        self.forgotten += conversations


class FakeNvml:
    """NVML as pynvml offers it, for GPUs that a test describes; its errors are pynvml's own.

    `faults` maps a call to the error it raises, for one GPU or (None) for all:
    `nvml.faults["nvmlDeviceGetPowerUsage", 0] = pynvml.NVML_ERROR_NOT_SUPPORTED`. The call "*" is
    every call on that GPU.
    """

    def __init__(self, num_gpus: int = 1, names: Sequence[str] = ()) -> None:
        self.names = list(names) or ["NVIDIA RTX 4090"] * num_gpus
        self.faults: dict[tuple[str, int | None], int] = {}
        self.processes: dict[int, list[tuple[int, int | None]]] = {}  # GPU: (pid, bytes)
        self.mig_uuids: dict[int, list[str]] = {}
        self.memory = SimpleNamespace(used=8 << 30, total=24 << 30, reserved=1 << 29)
        self.throttle_bits = 0
        self.num_inits = 0
        self.num_calls = 0

    def __getattr__(self, name: str) -> Any:
        offered = getattr(pynvml, name)
        if isinstance(offered, type) or not callable(offered):
            return offered
        return lambda *arguments: self._call(name, *arguments)

    def _call(self, function: str, *arguments: Any) -> Any:
        self.num_calls += 1
        gpu = arguments[0] if arguments else None
        for fault in ((function, gpu), (function, None), ("*", gpu)):
            if fault in self.faults:
                raise pynvml.NVMLError(self.faults[fault])
        return self._answer(function, *arguments)

    def _answer(self, function: str, gpu: Any = 0, *arguments: Any) -> Any:
        if isinstance(gpu, str):  # the handle of a MIG instance
            return gpu
        if function == "nvmlInit":
            self.num_inits += 1
        running = self.processes.get(gpu, [])
        mig_uuids = self.mig_uuids.get(gpu, [])
        return {
            "nvmlDeviceGetCount": lambda: len(self.names),
            "nvmlDeviceGetHandleByIndex": lambda: gpu,
            "nvmlDeviceGetUUID": lambda: f"GPU-{gpu}aaaaaaa-0000",
            "nvmlDeviceGetName": lambda: self.names[gpu],
            "nvmlDeviceGetMigMode": lambda: [int(bool(mig_uuids))] * 2,
            "nvmlDeviceGetMaxMigDeviceCount": lambda: len(mig_uuids),
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda: mig_uuids[arguments[0]],
            "nvmlDeviceGetUtilizationRates": lambda: SimpleNamespace(gpu=70 + gpu),
            "nvmlDeviceGetMemoryInfo": lambda: self.memory,
            "nvmlDeviceGetTemperatureV": lambda: 61,
            "nvmlDeviceGetPowerUsage": lambda: 287_500,
            "nvmlDeviceGetEnforcedPowerLimit": lambda: 450_000,
            "nvmlDeviceGetClockInfo": lambda: [2520, 10501][arguments[0] - 1],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda: self.throttle_bits,
            "nvmlDeviceGetComputeRunningProcesses": lambda: [
                SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in running
            ],
        }.get(function, lambda: None)()


class ScriptedEngine(IdleEngine):
    """Queues what is asked of it; a test puts the outputs into `streams`, in order of asking."""

    def __init__(self, info: ModelInfo) -> None:
        super().__init__(info=info)
        self.requests: list[GenerationRequest] = []
        self.streams: list[OutputStream] = []
        self.aborted: list[str] = []

    def submit(self, request: GenerationRequest) -> OutputStream:
        progress = RequestProgress(RequestStatus.WAITING, 1, 0, len(request.prompt_token_ids))
        stream = OutputStream(request.request_id, abort=self.abort, read_progress=lambda: progress)
        self.requests.append(request)
        self.streams.append(stream)
        return stream

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)


class ScriptedChatStream:
    """A chat answer in a test's words; the engine's abort ends it."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.progress = RequestProgress(RequestStatus.WAITING, 3, 0, 40)
        self.transcript: Transcript | None = None
        self.is_closed = False
        self._outputs: asyncio.Queue[RequestOutput | Exception] = asyncio.Queue()

    def say(self, text: str = "", **fields: Any) -> None:
        """One more delta; with a `finish_reason` it is the last."""
        output = RequestOutput(request_id=self.request_id, text=text, **fields)
        self._outputs.put_nowait(output)

    def fail(self, error: Exception) -> None:
        """The reader gets this error."""
        self._outputs.put_nowait(error)

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        while True:
            output = await self._outputs.get()
            if isinstance(output, Exception):
                raise output
            yield output
            if output.finish_reason is not None:
                return

    def close(self) -> None:
        self.is_closed = True


class ScriptedChat(IdleEngine):
    """An engine and its chat service in one: keeps what is asked, and refuses when told to.

    A prompt has as many tokens as its messages have words.
    """

    def __init__(self, info: ModelInfo | None = None) -> None:
        super().__init__(info=info or make_model_info(max_model_len=4096, num_blocks=256))
        self.prepared: list[ChatRequest] = []
        self.requests: list[ChatRequest] = []  # those that reached the engine
        self.max_tokens: list[int | None] = []  # of each of them
        self.streams: list[ScriptedChatStream] = []
        self.refusals: list[Exception] = []  # one for each of the next requests
        self.preparing: asyncio.Event | None = None  # `prepare` waits for it

    async def prepare(self, request: ChatRequest) -> PreparedChat:
        self.prepared.append(request)
        if self.preparing is not None:
            await self.preparing.wait()
        num_tokens = sum(len(message.content.split()) for message in request.messages)
        prompt = ChatPrompt("", tuple(range(num_tokens)), 0, request.continue_final_message)
        return PreparedChat(request, None, prompt)  # type: ignore[arg-type]

    def submit(  # type: ignore[override]
        self, prepared: PreparedChat, *, max_tokens: int | None = None
    ) -> ScriptedChatStream:
        if self.refusals:
            raise self.refusals.pop(0)
        self.requests.append(prepared.request)
        self.max_tokens.append(max_tokens)
        self.streams.append(ScriptedChatStream(str(len(self.streams))))
        return self.streams[-1]

    def abort(self, request_id: str) -> None:
        self.streams[int(request_id)].say(finish_reason=FinishReason.ABORT)
