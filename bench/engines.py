"""Engines of a benchmark's own, without a server around them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine import Engine, EngineConfig, EngineState, create_engine


def started_engine(config: EngineConfig) -> Engine:
    """An engine whose model is ready; who gets it stops it."""
    engine = create_engine(config)
    engine.start()
    while engine.status().state is EngineState.LOADING:
        time.sleep(0.1)
    if engine.status().state is not EngineState.READY:
        engine.stop()
        raise SystemExit(engine.status().message)
    return engine


@contextmanager
def running_engine(config: EngineConfig) -> Iterator[Engine]:
    engine = started_engine(config)
    try:
        yield engine
    finally:
        engine.stop()
