"""Which models need Python code of their own, and whether it may run. Runs nothing itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import constants
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.models.auto.tokenization_auto import (
    TOKENIZER_MAPPING_NAMES,
    tokenizer_class_from_name,
)

from engine.config import EngineConfig
from engine.errors import ModelLoadError


class RemoteCode(NamedTuple):
    """For which parts Transformers has no class of its own, so that the model's must run."""

    model: bool  # and its configuration
    tokenizer: bool


def allowed_remote_code(directory: Path, config: EngineConfig) -> RemoteCode:
    """What must run, and may. Asked for native classes, Transformers ignores the model's own.

    Raises:
        ModelLoadError: code is needed that --trust-remote-code does not allow.
    """
    description = _read(directory / "config.json")
    tokenizer_description = _read(directory / "tokenizer_config.json")
    model_classes = _own_classes(description, "AutoConfig", "AutoModelForCausalLM")
    tokenizer_classes = _own_classes(tokenizer_description, "AutoTokenizer")
    needed = RemoteCode(
        model=bool(model_classes) and not _has_native_model(description),
        tokenizer=bool(tokenizer_classes)
        and not _has_native_tokenizer(description, tokenizer_description),
    )
    if any(needed) and not config.trust_remote_code:
        classes = (model_classes if needed.model else []) + (
            tokenizer_classes if needed.tokenizer else []
        )
        raise ModelLoadError(_refusal(classes, directory, config))
    return needed


def _refusal(classes: list[str], directory: Path, config: EngineConfig) -> str:
    files = sorted({name.rpartition("--")[2].split(".")[0] + ".py" for name in classes})
    elsewhere = sorted({name.partition("--")[0] for name in classes if "--" in name})
    if elsewhere:
        places = ", ".join(f"{constants.ENDPOINT}/{name}" for name in elsewhere)
    elif Path(config.model).expanduser().exists():
        places = str(directory)
    else:
        places = f"{constants.ENDPOINT}/{config.model}/tree/{config.revision or 'main'}"
    return (
        f"{config.model} runs only with Python code of its own ({', '.join(files)}), which could "
        f"do anything that you can do on this machine. Read it at {places} first; if you trust it, "
        "start again with --trust-remote-code."
    )


def _has_native_model(description: Mapping[str, Any]) -> bool:
    return description.get("model_type") in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def _has_native_tokenizer(
    description: Mapping[str, Any], tokenizer_description: Mapping[str, Any]
) -> bool:
    if description.get("model_type") in TOKENIZER_MAPPING_NAMES:
        return True
    name = str(tokenizer_description.get("tokenizer_class", ""))
    return any(
        tokenizer_class_from_name(candidate) is not None
        for candidate in (name, name.removesuffix("Fast"))
        if candidate
    )


def _own_classes(description: Mapping[str, Any], *parts: str) -> list[str]:
    """Names such as `modeling_x.XForCausalLM`, with `owner/name--` before those of elsewhere."""
    named = description.get("auto_map") or {}
    if isinstance(named, list):  # an old way to name a tokenizer's two classes
        named = {"AutoTokenizer": named}
    return [name for part in parts for name in _flat(named.get(part))]


def _flat(value: object) -> Iterator[str]:
    for name in value if isinstance(value, list | tuple) else [value]:
        if isinstance(name, str):
            yield name


def _read(path: Path) -> Mapping[str, Any]:
    """Nothing for a file that is missing or damaged: loading it says what is wrong."""
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return described if isinstance(described, dict) else {}
