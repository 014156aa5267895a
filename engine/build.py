"""Makes the engine that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.threads import prepare_threads
from engine.process.process_engine import ProcessEngine

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel


def create_engine(config: EngineConfig) -> Engine:
    """An engine that is not started yet. Call it before anything imports PyTorch."""
    prepare_threads(config.cache_path)  # the engine's process inherits the variables
    return ProcessEngine(config, load)


def load(config: EngineConfig, report: Callable[[str], None]) -> LoadedModel:
    """Runs in the engine's process."""
    report("Loading PyTorch and Transformers.")
    # Imported here: it takes seconds, and PyTorch must come before Numba.
    from engine.model.loader import load_model

    return load_model(config, report)
