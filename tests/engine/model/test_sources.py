"""What the model setting may name, and the sentence for everything that is not there."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from engine.config import EngineConfig
from engine.errors import ConfigError, ModelLoadError
from engine.model import sources
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


def hub_error(kind: type[Exception]) -> Exception:
    response = httpx.Response(401, request=httpx.Request("GET", "https://hub/model"))
    if kind in {GatedRepoError, RepositoryNotFoundError}:
        return kind("refused", response=response)  # type: ignore[call-arg]
    return kind("refused")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (GatedRepoError, "team/model is gated: accept its terms on the hub, then run `hf auth"),
        (RepositoryNotFoundError, "The model hub has no team/model: check the name"),
        (LocalEntryNotFoundError, "team/model is not on this machine and the model hub cannot be"),
        (ConnectionError, "team/model is not on this machine and the model hub cannot be reached"),
    ],
)
def test_the_hub_s_refusals_become_sentences(
    kind: type[Exception], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise hub_error(kind)

    monkeypatch.setattr(sources, "snapshot_download", refuse)
    with pytest.raises(ModelLoadError, match=expected):
        model_directory(EngineConfig(model="team/model"), ignore)


def test_a_hub_model_is_refused_offline() -> None:
    said: list[str] = []
    with pytest.raises(ModelLoadError, match="is not on this machine and the model hub cannot"):
        model_directory(EngineConfig(model="nobody/no-such-model"), said.append)
    assert said == ["Fetching nobody/no-such-model from the model hub, if it is not here yet."]


def test_a_cache_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"--cache-dir .* cannot be made"):
        check_model_setting(EngineConfig(cache_dir=tmp_path / "file" / "cache"))
