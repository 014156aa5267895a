"""Tokenizers of each family, loaded once."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.model.sources import model_directory
from engine.text.tokenizer import Tokenizers, load_tokenizers
from tests.tokenizer_factories import (
    save_llama_tokenizer,
    save_phi3_tokenizer,
    save_qwen3_tokenizer,
)


@pytest.fixture(scope="session")
def bundled() -> Tokenizers:
    return load_tokenizers(model_directory(EngineConfig(), lambda sentence: None))


@pytest.fixture(scope="session")
def phi3(tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    return load_tokenizers(save_phi3_tokenizer(tmp_path_factory.mktemp("phi3")))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    return load_tokenizers(save_llama_tokenizer(tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    return load_tokenizers(save_qwen3_tokenizer(tmp_path_factory.mktemp("qwen3")))


@pytest.fixture(scope="session", params=["bundled", "phi3", "llama", "qwen3"])
def tokenizers(request: pytest.FixtureRequest) -> Tokenizers:
    """Each family in turn."""
    found: Tokenizers = request.getfixturevalue(request.param)
    return found
