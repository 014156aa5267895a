"""The bundled model in a process of its own, as the server runs it."""

from __future__ import annotations

import os
import signal
import time

from engine.build import load
from engine.config import EngineConfig
from engine.engine import EngineState
from engine.process.process_engine import ProcessEngine
from engine.request import FinishReason
from tests.engine_factories import read_all, submit, wait_until

PROMPT = tuple(range(1000, 1040))


def test_after_a_kill_the_next_request_is_answered_within_30_s() -> None:
    config = EngineConfig(kv_cache_memory_bytes=64 * 1024**2, max_model_len=512)
    engine = ProcessEngine(config, load)
    engine.start()
    try:
        wait_until(lambda: engine.status().state is EngineState.READY, 180)
        before = read_all(submit(engine, "a", prompt=PROMPT, max_tokens=8, temperature=0.0))
        assert engine.pid is not None
        started_s = time.monotonic()
        os.kill(engine.pid, signal.SIGKILL)
        after = read_all(submit(engine, "b", prompt=PROMPT, max_tokens=8, temperature=0.0))
        assert time.monotonic() - started_s < 30
        assert after.finish_reason is FinishReason.LENGTH
        assert after.token_ids == before.token_ids
        assert engine.status().num_restarts == 1
    finally:
        engine.stop()
