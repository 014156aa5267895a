"""Fetches models from the hub: says what stands in the way, and how far it is."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import DryRunFileInfo, constants, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError
    DryRunError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    IncompleteSnapshotError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.model.bundled import Report
from engine.model.download_meter import DownloadMeter
from engine.model.remote_code import allowed_remote_code
from engine.model.weight_files import (
    GGUF_PATTERN,
    PICKLE_PATTERNS,
    WEIGHTS_PATTERN,
    check_weight_files,
)

_DESCRIPTIONS = ("config.json", "tokenizer_config.json")
_FILES = ("*.json", "*.model", "*.txt", "*.jinja", WEIGHTS_PATTERN)
_CODE = "*.py"
# For other programs: parts of a checkpoint, or the same weights once more.
_IGNORED = ("*/*", "consolidated*")


def fetch_model(config: EngineConfig, report: Report) -> Path:
    """The directory with a hub model's files, fetched as far as they are not here.

    Raises:
        ModelLoadError: the hub does not give the model, Hearth cannot use it, or the disk is full.
    """
    report(f"Looking for {config.model} on the model hub.")
    patterns = [*_FILES, _CODE] if config.trust_remote_code else list(_FILES)
    try:
        listing = _list_files(config, [*patterns, *PICKLE_PATTERNS, GGUF_PATTERN])
    except DryRunError as unreachable:
        return _local_copy(config, patterns, unreachable.__cause__ or unreachable)
    check_weight_files(config.model, [file.filename for file in listing])
    allowed_remote_code(_snapshot(config, _DESCRIPTIONS), config)  # before gigabytes are fetched
    missing_bytes = sum(
        file.file_size or 0
        for file in listing
        if file.will_download and any(fnmatch(file.filename, pattern) for pattern in patterns)
    )
    _check_disk(config.model, missing_bytes)
    return _snapshot(config, patterns, DownloadMeter(config.model, missing_bytes, report))


def fetch_config(config: EngineConfig) -> Path:
    """The directory with a hub model's config.json, and its code if that may run; no weights.

    Raises:
        ModelLoadError: see `fetch_model`.
    """
    patterns = ["config.json", *([_CODE] if config.trust_remote_code else [])]
    directory = _snapshot(config, patterns)
    if not (directory / "config.json").is_file():
        check_weight_files(config.model, ())
    return directory


def _list_files(config: EngineConfig, patterns: Sequence[str]) -> list[DryRunFileInfo]:
    """Raises DryRunError where the hub cannot be asked; its cause says why."""
    with _explained(config):
        return snapshot_download(
            config.model,
            revision=config.revision,
            allow_patterns=list(patterns),
            ignore_patterns=list(_IGNORED),
            tqdm_class=_bar_class(None),
            dry_run=True,
        )


def _snapshot(
    config: EngineConfig,
    patterns: Sequence[str],
    meter: DownloadMeter | None = None,
    local_files_only: bool = False,
) -> Path:
    with _explained(config):
        directory = snapshot_download(
            config.model,
            revision=config.revision,
            allow_patterns=list(patterns),
            ignore_patterns=list(_IGNORED),
            local_files_only=local_files_only,
            tqdm_class=_bar_class(meter),
        )
    return Path(directory)


def _local_copy(config: EngineConfig, patterns: Sequence[str], reason: BaseException) -> Path:
    """What an earlier start has fetched; where there is nothing, the reason for not fetching."""
    try:
        return _snapshot(config, patterns, local_files_only=True)
    except ModelLoadError as error:
        is_partial = isinstance(error.__cause__, IncompleteSnapshotError)
        sentence = str(error) if is_partial else _sentence(reason, config)
        raise ModelLoadError(sentence) from reason


def _bar_class(meter: DownloadMeter | None) -> Any:
    """What snapshot_download takes for a class of progress bars; without a meter they are mute."""
    return (meter or DownloadMeter("", 0, _say_nothing)).bar


@contextmanager
def _explained(config: EngineConfig) -> Iterator[None]:
    try:
        yield
    except DryRunError:
        raise
    except (OSError, HTTPError, HFValidationError) as error:
        raise ModelLoadError(_sentence(error, config)) from error


def _sentence(error: BaseException, config: EngineConfig) -> str:
    model = config.model
    match error:
        case GatedRepoError():
            return (
                f"{model} is gated: accept its terms at {constants.ENDPOINT}/{model} with your "
                "account, then run `hf auth login` here, or set HF_TOKEN to a token of that "
                "account, and start again."
            )
        case RevisionNotFoundError():
            return f"{model} has no revision {config.revision}: see its branches on the model hub."
        case RepositoryNotFoundError() | HFValidationError():
            return (
                f"The model hub has no {model}: check the name (a private model needs "
                "`hf auth login`, or HF_TOKEN)."
            )
        case IncompleteSnapshotError():
            return (
                f"Only a part of {model} is on this machine and the model hub cannot be reached: "
                "connect to the network and start again; what is here is kept."
            )
        case HfHubHTTPError() if error.response.status_code in (401, 403):
            return (
                f"The model hub does not let this account read {model}: run `hf auth login`, or "
                "set HF_TOKEN to a token that may."
            )
        case HfHubHTTPError():
            return (
                f"The model hub answered with an error ({error.response.status_code}) when asked "
                f"for {model}: try again later."
            )
        case OSError(errno=errno.ENOSPC):
            return f"The disk of {constants.HF_HUB_CACHE} is full: {_ROOM_ADVICE}"
    return (
        f"{model} is not on this machine and the model hub cannot be reached: connect to the "
        "network, or set --model to a directory, a .gguf file or `bundled`."
    )


def _check_disk(model: str, needed_bytes: int) -> None:
    directory = Path(constants.HF_HUB_CACHE)
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if needed_bytes > free_bytes:
        raise ModelLoadError(
            f"{model} needs {needed_bytes / 1e9:.1f} GB more in {directory}, where "
            f"{free_bytes / 1e9:.1f} GB are free: {_ROOM_ADVICE}"
        )


_ROOM_ADVICE = "make room, or set HF_HOME to a directory on a larger disk."


def _say_nothing(sentence: str) -> None:
    """For downloads of a few kilobytes."""
