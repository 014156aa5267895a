"""Engines in a process of their own on a FakeRunner: what spawned processes import by name."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from engine.batch import ScheduledBatch
from engine.config import EngineConfig
from engine.engine import EngineState
from engine.errors import ModelLoadError
from engine.process.process_engine import ProcessEngine
from tests.engine_factories import wait_until
from tests.factories import make_model_info
from tests.fake_runner import ByteTokenizer, FakeRunner


@dataclass(frozen=True)
class FakeLoad:
    """Loads a FakeRunner with blocks of 8 tokens, and does what a test wants to go wrong.

    Requests make the faults of a step by how their ids begin: "kill" ends the process, "hang" the
    work, "device" loses the device, "break" breaks the loop. In a folder, `count_in`, the loads are
    counted; the faults are then those of the first process alone.
    """

    step_s: float = 0.0
    load_s: float = 0.0
    later_load_s: float = 0.0
    count_in: Path | None = None
    failing: Literal["never", "first", "later"] = "never"
    dies_while_loading: bool = False
    is_another_model: bool = False  # at each load

    def __call__(self, config: EngineConfig, report: Callable[[str], None]) -> Any:
        report("Loading the weights.")
        self._make_lock()
        num_loads = self._count_load()
        time.sleep(self.load_s if num_loads == 1 else self.later_load_s)
        if self.dies_while_loading:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.failing == ("first" if num_loads == 1 else "later"):
            raise ModelLoadError("There is no model at /nowhere: check --model.")
        runner = FakeRunner(8)
        has_faults = num_loads == 1

        def fault(batch: ScheduledBatch) -> None:
            time.sleep(self.step_s)
            for scheduled in batch.requests:
                if has_faults:
                    _misbehave(scheduled.request.request_id, runner)

        runner.fault = fault
        info = make_model_info(
            block_size=8,
            num_blocks=config.num_gpu_blocks_override or 64,
            max_model_len=256,
            eos_token_ids=frozenset(),
            fingerprint=str(num_loads) if self.is_another_model else "0123",
        )
        return SimpleNamespace(runner=runner, info=info, tokenizer=ByteTokenizer())

    def _make_lock(self) -> None:
        """As tqdm does: a lock whose name in the system may outlive a process that is killed."""
        object.__setattr__(self, "_lock", multiprocessing.RLock())

    def _count_load(self) -> int:
        """How often this was called, in whatever process; 1 where nobody counts."""
        if self.count_in is None:
            return 1
        file = self.count_in / "loads"
        with file.open("a") as loads:
            loads.write("x")
        return file.stat().st_size


def _misbehave(request_id: str, runner: FakeRunner) -> None:
    if request_id.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif request_id.startswith("hang"):
        time.sleep(1000)
    elif request_id.startswith("device"):
        runner.is_lost = True
        runner.check_device()
    elif request_id.startswith("break"):
        runner.execute = lambda batch: None  # type: ignore[method-assign, assignment]


@contextlib.contextmanager
def process_engine(load: FakeLoad | None = None, **config: Any) -> Iterator[ProcessEngine]:
    """Started, and ready unless its load goes wrong; stopped afterwards."""
    engine = ProcessEngine(EngineConfig(**config), load or FakeLoad())
    engine.start()
    try:
        wait_until(lambda: engine.status().state is not EngineState.LOADING, 30)
        yield engine
    finally:
        engine.stop()
