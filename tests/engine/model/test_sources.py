"""What the model setting may name, and the sentence for everything that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError, ModelLoadError
from engine.model.sources import check_model_setting, model_directory


def ignore(sentence: str) -> None:
    """Progress that a test does not look at."""


@pytest.mark.parametrize("model", ["bundled", "microsoft/Phi-3-mini-128k-instruct"])
def test_names_that_may_be_right_pass(model: str) -> None:
    check_model_setting(EngineConfig(model=model))


@pytest.mark.parametrize(
    "model", ["./nothing", "/no/such/dir", "a/b/c", "some.gguf", "~/x", "llama"]
)
def test_paths_that_do_not_exist_are_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=f"--model {model} does not exist: give a directory"):
        check_model_setting(EngineConfig(model=model))


def test_a_directory_needs_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"directory without a config\.json"):
        check_model_setting(EngineConfig(model=str(tmp_path)))
    (tmp_path / "config.json").touch()
    assert model_directory(EngineConfig(model=str(tmp_path)), ignore) == tmp_path


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.touch()
    with pytest.raises(ConfigError, match=r"is a file, but not a \.gguf file"):
        check_model_setting(EngineConfig(model=str(file)))


def test_a_hub_model_is_refused_offline() -> None:
    said: list[str] = []
    with pytest.raises(ModelLoadError, match="is not on this machine and the model hub cannot"):
        model_directory(EngineConfig(model="nobody/no-such-model"), said.append)
    assert said == ["Looking for nobody/no-such-model on the model hub."]


def test_a_cache_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"--cache-dir .* cannot be made"):
        check_model_setting(EngineConfig(cache_dir=tmp_path / "file" / "cache"))
