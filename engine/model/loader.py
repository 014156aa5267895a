"""From the settings to a model in memory, with what runs it. The only caller of from_pretrained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)

from engine.config import EngineConfig
from engine.errors import HearthError, ModelLoadError
from engine.model.assembly import LoadedModel, assemble
from engine.model.attention_hook import IMPLEMENTATION, register_attention
from engine.model.limits import resolve_max_model_len
from engine.model.remote_code import allowed_remote_code
from engine.model.rope import replace_long_rope
from engine.model.sources import check_model_setting, model_directory
from engine.model.transposed_linear import is_worthwhile, transpose_linears
from engine.model.weight_files import check_weight_files

__all__ = ["LoadedModel", "check_model_setting", "load_model"]


def load_model(config: EngineConfig, report: Callable[[str], None]) -> LoadedModel:
    """Load what `config.model` names; `report` gets a sentence before all that takes time.

    Raises:
        ConfigError: a setting does not fit the model or the machine.
        ModelLoadError: the model cannot be found, read, or run, or needs code that may not run.
    """
    directory = model_directory(config, report)
    check_weight_files(config.model, [path.name for path in directory.iterdir()])
    runs_code = allowed_remote_code(directory, config).tokenizer
    try:
        report("Loading the tokenizer.")
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=runs_code)
        report("Loading the weights.")
        model = load_weights(directory, config)
        report("Making room for the KV cache and trying the model.")
        loaded = assemble(config, model, tokenizer, directory, report)
        info = dataclasses.replace(loaded.info, tokenizer_runs_code=runs_code)
        return loaded._replace(info=info)
    except HearthError:
        raise
    except Exception as error:  # whatever a model's files or code may raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelLoadError(
            f"{config.model} cannot be loaded: {reason} Check its files, or choose another model."
        ) from error


def load_weights(directory: Path, config: EngineConfig) -> PreTrainedModel:
    """The model on its device, ready for our attention.

    Raises:
        ConfigError: the context asked for is longer than the model supports.
        ModelLoadError: weights are missing, the model needs code that may not run, or it cannot
            take our attention.
    """
    register_attention()
    runs_code = allowed_remote_code(directory, config).model
    model_config = AutoConfig.from_pretrained(directory, trust_remote_code=runs_code)
    resolve_max_model_len(model_config, config.max_model_len)  # refuse before the long part
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, findings = AutoModelForCausalLM.from_pretrained(
        directory,
        config=model_config,
        dtype=_dtype(config.dtype, device),
        device_map={"": device} if device == "cuda" else None,
        attn_implementation=IMPLEMENTATION,
        trust_remote_code=runs_code,
        use_safetensors=True,
        output_loading_info=True,
    )
    missing = sorted(findings["missing_keys"])
    if missing:
        raise ModelLoadError(
            f"{directory} lacks {len(missing)} of the model's weights, {missing[0]} among them: "
            "fetch the model again."
        )
    replace_long_rope(model)
    if is_worthwhile(model):
        transpose_linears(model)
    return model.eval()


def _dtype(setting: str, device: str) -> torch.dtype | str:
    if setting != "auto":
        return getattr(torch, setting)
    return torch.float32 if device == "cpu" else "auto"
