"""Makes the engine that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.engine import Engine
from engine.in_process import InProcessEngine
from engine.model.threads import prepare_threads

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel


def create_engine(config: EngineConfig) -> Engine:
    """An engine that is not started yet. Call it before anything imports PyTorch."""
    prepare_threads(config.cache_path)
    return InProcessEngine(config, _load)


def _load(config: EngineConfig, report: Callable[[str], None]) -> LoadedModel:
    report("Loading PyTorch and Transformers.")
    # Imported here, in the engine's thread: it takes seconds, and the page is served meanwhile.
    from engine.model.loader import load_model

    return load_model(config, report)
