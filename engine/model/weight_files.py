"""Whether what a model consists of can be loaded, told by the names of its files."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch

from engine.errors import ModelLoadError

WEIGHTS_PATTERN = "*.safetensors"
PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth")  # never loaded: reading one can run code
GGUF_PATTERN = "*.gguf"


def check_weight_files(model: str, names: Sequence[str]) -> None:
    """Look at the names of all files of a model.

    Raises:
        ModelLoadError: a part is missing, or the weights are in a form that Hearth does not load.
    """
    if "config.json" not in names:
        if _matching(names, GGUF_PATTERN):
            raise ModelLoadError(
                f"{model} has .gguf files only: download one of them and set --model to that file."
            )
        raise ModelLoadError(
            f"{model} has no config.json, so it is no Transformers model (an adapter, perhaps): "
            "name the model that it was made from, or another."
        )
    if _matching(names, WEIGHTS_PATTERN):
        return
    pickles = [name for pattern in PICKLE_PATTERNS for name in _matching(names, pattern)]
    if pickles:
        raise ModelLoadError(
            f"{model} has its weights only in the form of {pickles[0]}, which can carry code; "
            "Hearth loads safetensors. Many such models have a converted copy among the proposed "
            "changes on their page: try --revision refs/pr/1, or choose another model."
        )
    raise ModelLoadError(f"{model} has no .safetensors files: fetch it again, or choose another.")


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatch(name, pattern)]
