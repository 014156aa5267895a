"""What is loaded once for all tests: the bundled model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from engine.config import EngineConfig
from engine.model.threads import prepare_threads

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from engine.model.assembly import LoadedModel

pytest_plugins = ["tests.server"]

# Read when the libraries are imported: by whichever test comes first.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
prepare_threads(EngineConfig().cache_path)


class BundledModel(NamedTuple):
    model: PreTrainedModel  # with our attention
    tokenizer: PreTrainedTokenizerBase
    directory: Path


@pytest.fixture(scope="session")
def bundled_model() -> BundledModel:
    """Weights and tokenizer, converted into the user's cache if they are not there yet."""
    from transformers import AutoTokenizer

    from engine.model.loader import load_weights
    from engine.model.sources import model_directory

    config = EngineConfig()
    directory = model_directory(config, lambda sentence: None)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    return BundledModel(load_weights(directory, config), tokenizer, directory)


@pytest.fixture(scope="session")
def loaded_bundled_model(bundled_model: BundledModel) -> LoadedModel:
    """The bundled model with the default settings and a pool of 64 MiB."""
    from engine.model.assembly import assemble

    config = EngineConfig(kv_cache_memory_bytes=64 * 1024**2, max_model_len=4096)
    return assemble(config, *bundled_model, lambda sentence: None)
