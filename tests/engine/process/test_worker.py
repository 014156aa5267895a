"""The process itself: signals, and its end when the parent is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from engine.request import FinishReason
from tests.engine_factories import read_all, submit, wait_until
from tests.process_loads import FakeLoad, process_engine

ROOT = Path(__file__).resolve().parents[3]


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("load", ["FakeLoad(step_s=0.01)", "FakeLoad(load_s=60)"])
def test_it_never_outlives_its_parent(load: str) -> None:
    """The parent is killed while the process answers, and while it loads."""
    program = textwrap.dedent(f"""
        import time
        from engine.config import EngineConfig
        from engine.engine import EngineState
        from engine.process.process_engine import ProcessEngine
        from tests.engine_factories import submit
        from tests.process_loads import FakeLoad

        engine = ProcessEngine(EngineConfig(), {load})
        engine.start()
        while engine.status().message not in {{"Loading the weights.", "The model is ready."}}:
            time.sleep(0.01)
        while "load_s=60" not in {load!r} and engine.status().state is not EngineState.READY:
            time.sleep(0.01)
        if engine.status().state is EngineState.READY:
            stream = submit(engine, max_tokens=200)
            next(iter(stream))
        print(engine.pid, flush=True)
        time.sleep(60)
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
    wait_until(lambda: is_gone(pid), 5)


def test_interrupts_of_the_terminal_are_the_parents_business() -> None:
    with process_engine(FakeLoad(step_s=0.005)) as engine:
        stream = submit(engine, max_tokens=30)
        next(iter(stream))
        assert engine.pid is not None
        for _ in range(3):
            os.kill(engine.pid, signal.SIGINT)
        assert read_all(stream).finish_reason is FinishReason.LENGTH
        assert engine.status().num_restarts == 0


def test_a_service_manager_that_ends_all_processes_leaves_time_for_an_orderly_end() -> None:
    with process_engine(FakeLoad(step_s=0.005)) as engine:
        stream = submit(engine, max_tokens=200)
        next(iter(stream))
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGTERM)
        time.sleep(0.3)
        engine.stop()
        assert read_all(stream).finish_reason is FinishReason.ABORT


def test_a_program_that_forgets_to_stop_its_engine_ends_all_the_same() -> None:
    program = textwrap.dedent("""
        from engine.config import EngineConfig
        from engine.process.process_engine import ProcessEngine
        from tests.engine_factories import read_all, submit, wait_until
        from tests.process_loads import FakeLoad

        engine = ProcessEngine(EngineConfig(), FakeLoad())
        engine.start()
        wait_until(lambda: engine.status().message == "The model is ready.")
        assert len(read_all(submit(engine, max_tokens=5)).token_ids) == 5
        print(engine.pid)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: is_gone(int(done.stdout)), 5)
