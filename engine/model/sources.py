"""From the model setting to a directory with weights, configuration and tokenizer."""

from __future__ import annotations

from pathlib import Path

from engine.config import BUNDLED_MODEL, EngineConfig
from engine.errors import ConfigError
from engine.model.bundled import Report, bundled_directory, find_bundled_gguf, gguf_directory


def check_model_setting(config: EngineConfig) -> None:
    """Say at once what can be said without loading anything.

    Raises:
        ConfigError: the bundled model is not installed, there is no such file or directory, or
            the cache directory cannot be made.
    """
    _check_cache_directory(config)
    if config.model == BUNDLED_MODEL:
        find_bundled_gguf()
        return
    path = Path(config.model).expanduser()
    if path.is_dir() and not (path / "config.json").is_file():
        raise ConfigError(
            f"--model {config.model} is a directory without a config.json: name the directory that "
            "holds the model's files."
        )
    if path.is_file() and path.suffix != ".gguf":
        raise ConfigError(f"--model {config.model} is a file, but not a .gguf file.")
    if not path.exists() and _is_meant_as_path(config.model):
        raise ConfigError(
            f"--model {config.model} does not exist: give a directory, a .gguf file, a hub id such "
            f"as microsoft/Phi-3-mini-128k-instruct, or {BUNDLED_MODEL}."
        )


def model_directory(config: EngineConfig, report: Report) -> Path:
    """The directory to load from; converts or downloads where needed.

    Raises:
        ConfigError: see `check_model_setting`.
        ModelLoadError: the file cannot be converted, or the hub does not give the model.
    """
    check_model_setting(config)
    if config.model == BUNDLED_MODEL:
        return bundled_directory(config.cache_path, report)
    path = Path(config.model).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        return gguf_directory(path, config.cache_path, report)
    # Imported here: it needs Transformers, which the check of a setting must not wait for.
    from engine.model.hub import fetch_model

    return fetch_model(config, report)


def _check_cache_directory(config: EngineConfig) -> None:
    try:
        config.cache_path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--cache-dir {config.cache_dir} cannot be made ({error.strerror}): name a directory "
            "that this account may write to."
        ) from None


def _is_meant_as_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.count("/") != 1 or model.endswith(".gguf")
