"""The bytes of host slots, and the copies between them and the device's blocks.

On a CUDA device the slots are page-locked. Saves go through two staging buffers: the blocks are
gathered there in the order of the step's own work, so that the step may write them at once, and a
second stream brings them to the host meanwhile.

    main stream   gather 1 | gather 2 | wait 1, gather 3 | the step ...
    side stream            | copy 1   | copy 2           | copy 3
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from engine.kv.block_moves import Fill, Load, Save
from engine.kv.storage import PagedKVStorage

_STAGING_BYTES = 16 * 1024**2
_log = logging.getLogger(__name__)


class HostStorage:
    """Implements BlockMover. Belongs to the thread that runs the steps."""

    def __init__(self, storage: PagedKVStorage, num_slots: int) -> None:
        self.num_slots = num_slots
        self.block_nbytes = storage.block_nbytes
        self._storage = storage
        self._slots = torch.empty((num_slots, self.block_nbytes), dtype=torch.uint8)
        self._staging: _Staging | None = None
        if storage.device.type == "cuda" and num_slots:
            _lock_pages(self._slots)
            self._staging = _Staging(storage, self._slots)

    @torch.inference_mode()
    def save(self, saves: Sequence[Save]) -> None:
        """The blocks as they are now, whatever is written to them later."""
        if self._staging is not None:
            self._staging.save(saves)
            return
        packed = self._storage.pack_blocks([save.block_id for save in saves])
        self._slots[torch.tensor([save.slot for save in saves])] = packed.cpu()

    @torch.inference_mode()
    def load(self, loads: Sequence[Load]) -> None:
        if self._staging is not None:
            self._staging.load(loads)
            return
        packed = self._slots[torch.tensor([load.slot for load in loads])]
        block_ids = [load.block_id for load in loads]
        self._storage.unpack_blocks(block_ids, packed.to(self._storage.device))

    def read_slots(self, slots: Sequence[int]) -> list[bytes]:
        self._settle()
        return [self._slots[slot].numpy().tobytes() for slot in slots]

    def fill_slots(self, fills: Sequence[Fill]) -> None:
        self._settle()
        for slot, payload in fills:
            self._slots[slot] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)

    @torch.inference_mode()
    def read_blocks(self, block_ids: Sequence[int]) -> list[bytes]:
        packed = self._storage.pack_blocks(block_ids).cpu()
        return [row.numpy().tobytes() for row in packed]

    def _settle(self) -> None:
        """Before the processor itself touches slots: no copy may be under way."""
        if self._staging is not None:
            self._staging.synchronize()


class _Staging:
    """Copies between device blocks and page-locked slots, on CUDA."""

    def __init__(self, storage: PagedKVStorage, slots: torch.Tensor) -> None:
        device = storage.device
        block_nbytes = storage.block_nbytes
        self._storage = storage
        self._slots = slots
        self._num_at_once = max(1, _STAGING_BYTES // block_nbytes)
        shape = (self._num_at_once, block_nbytes)
        self._buffers = [torch.empty(shape, dtype=torch.uint8, device=device) for _ in range(2)]
        self._emptied = [_event() for _ in range(2)]  # of the side stream
        self._loaded = _event()  # the newest load has read its slots
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def save(self, saves: Sequence[Save]) -> None:
        main = torch.cuda.current_stream(self._storage.device)
        self._side.wait_event(self._loaded)  # a slot that is still being read is not written
        for number, start in enumerate(range(0, len(saves), self._num_at_once)):
            some = saves[start : start + self._num_at_once]
            buffer, emptied = self._buffers[number % 2], self._emptied[number % 2]
            main.wait_event(emptied)
            packed = self._storage.pack_blocks([save.block_id for save in some])
            buffer[: len(some)].copy_(packed)
            self._side.wait_stream(main)
            with torch.cuda.stream(self._side):
                for row, save in enumerate(some):
                    self._slots[save.slot].copy_(buffer[row], non_blocking=True)
                emptied.record(self._side)

    def load(self, loads: Sequence[Load]) -> None:
        main = torch.cuda.current_stream(self._storage.device)
        main.wait_stream(self._side)  # what was saved is in its slot
        for start in range(0, len(loads), self._num_at_once):
            some = loads[start : start + self._num_at_once]
            # A buffer is free here: the side stream has nothing left to do.
            buffer = self._buffers[0][: len(some)]
            for row, load in enumerate(some):
                buffer[row].copy_(self._slots[load.slot], non_blocking=True)
            self._storage.unpack_blocks([load.block_id for load in some], buffer)
        self._loaded.record(main)

    def synchronize(self) -> None:
        self._side.synchronize()
        self._loaded.synchronize()


def _lock_pages(slots: torch.Tensor) -> None:
    """In place: PyTorch's own pinned allocator rounds sizes up to a power of two.

    The slots live as long as the process, so nothing unlocks them.
    """
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    error = runtime.cudaHostRegister(slots.data_ptr(), slots.nbytes, 0)
    if int(error) != 0:
        _log.warning(
            "Host memory cannot be page-locked (CUDA error %d): copies will wait", int(error)
        )


def _event() -> torch.cuda.Event:
    """Before it is recorded, waiting for it returns at once."""
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
