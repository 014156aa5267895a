"""Reads a ModelOutline from a configuration: the model is built without memory for its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from engine.config import BUNDLED_MODEL, EngineConfig
from engine.errors import ConfigError, HearthError, ModelLoadError
from engine.kv.schemes import KV_SCHEMES
from engine.model.assembly import ModelShape
from engine.model.attention_hook import layer_windows
from engine.model.bundled import find_bundled_gguf
from engine.model.hub import fetch_config
from engine.model.limits import resolve_max_model_len
from engine.model.outline import ModelOutline
from engine.model.remote_code import allowed_remote_code
from engine.model.sources import check_model_setting

# The names that configurations use for the same thing.
_NUM_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_NUM_ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_INTERMEDIATE = ("moe_intermediate_size", "intermediate_size", "ffn_dim", "n_inner")


def read_outline(config: EngineConfig) -> ModelOutline:
    """The outline of what `config.model` names: what loading takes, or a configuration's file.

    Raises:
        ConfigError: there is no such file, or more context is asked for than the model has.
        ModelLoadError: the hub does not give the configuration, or it cannot be used.
    """
    directory = _directory(config)
    try:
        # A file on its own has no code beside it.
        runs_code = directory is not None and allowed_remote_code(directory, config).model
        model_config = _read_config(directory, config, runs_code)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(model_config, trust_remote_code=runs_code)
        return _outline_of(model, config)
    except HearthError:
        raise
    except Exception as error:  # whatever a configuration or a model's code may raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ModelLoadError(
            f"The configuration of {config.model} cannot be used: {reason}. Check the file, or "
            "choose another model."
        ) from error


def _directory(config: EngineConfig) -> Path | None:
    """Where config.json lies; None for a file with another name."""
    path = Path(config.model).expanduser()
    if path.is_file() and path.suffix == ".json":
        return path.parent if path.name == "config.json" else None
    check_model_setting(config)
    if config.model == BUNDLED_MODEL or path.is_file():
        return None
    return path if path.is_dir() else fetch_config(config)


def _read_config(directory: Path | None, config: EngineConfig, runs_code: bool) -> PreTrainedConfig:
    if directory is not None:
        return AutoConfig.from_pretrained(directory, trust_remote_code=runs_code)
    path = Path(config.model).expanduser()
    if path.suffix == ".json":
        return AutoConfig.from_pretrained(path, trust_remote_code=False)
    gguf = find_bundled_gguf() if config.model == BUNDLED_MODEL else path
    found = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    found.dtype = torch.float32  # what converting makes of every file
    return found


def _outline_of(model: PreTrainedModel, config: EngineConfig) -> ModelOutline:
    described = model.config
    shape = ModelShape.of(described)
    dtype = _dtype(described, config.dtype)
    max_model_len = resolve_max_model_len(described, config.max_model_len)
    windows = {window for window in layer_windows(described, max_model_len) if window is not None}
    return ModelOutline(
        name=config.model,
        architecture=type(model).__name__,
        dtype=str(dtype).removeprefix("torch."),
        bytes_per_number=dtype.itemsize,
        num_parameters=sum(weight.numel() for weight in model.parameters()),
        num_active_parameters=_num_active_parameters(model),
        **shape._asdict(),
        hidden_size=described.hidden_size,
        intermediate_size=_first(described, _INTERMEDIATE) or 4 * described.hidden_size,
        num_active_experts=_first(described, _NUM_ACTIVE) or 1,
        vocab_size=described.vocab_size,
        trained_model_len=getattr(described, "max_position_embeddings", None) or max_model_len,
        max_model_len=max_model_len,
        sliding_window=max(windows, default=None),
        kv_bytes_per_token=_kv_bytes_per_token(shape, dtype),
    )


def _dtype(described: PreTrainedConfig, asked: str) -> torch.dtype:
    """What a GPU would use; float32 where neither the settings nor the model name a type."""
    if asked != "auto":
        chosen: torch.dtype = getattr(torch, asked)
        return chosen
    return described.dtype or torch.float32


def _num_active_parameters(model: PreTrainedModel) -> int | None:
    """All but the experts that a token is not sent to; shared experts count as what they are."""
    counts = {name: weight.numel() for name, weight in model.named_parameters()}
    num_in_experts = sum(count for name, count in counts.items() if ".experts." in name)
    if not num_in_experts:
        return sum(counts.values())
    num_experts, num_active = (_first(model.config, names) for names in (_NUM_EXPERTS, _NUM_ACTIVE))
    if not num_experts or not num_active:
        return None
    return sum(counts.values()) - num_in_experts + num_in_experts * num_active // num_experts


def _kv_bytes_per_token(shape: ModelShape, dtype: torch.dtype) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for scheme in KV_SCHEMES:
        try:
            sizes[scheme.name] = scheme.bytes_per_token(
                shape.num_layers, shape.num_kv_heads, shape.head_dim, dtype
            )
        except ConfigError:  # heads of this size do not fit the format
            continue
    return sizes


def _first(described: PreTrainedConfig, names: tuple[str, ...]) -> Any:
    values = (getattr(described, name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value), None)
