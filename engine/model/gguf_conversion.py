"""Turns a .gguf file into what loads in seconds: safetensors and a plain tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel

from engine.errors import ModelLoadError


def convert_gguf(
    gguf: Path, directory: Path, report: Callable[[str], None], generation: Mapping[str, float]
) -> None:
    """Write weights (float32, exactly what the file's blocks stand for) and tokenizer.

    Raises:
        ModelLoadError: the file cannot be read as a language model.
    """
    once = f"Converting {gguf.name} (only this once)"
    try:
        report(f"{once}, step 1 of 3: reading the tokenizer.")
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        report(f"{once}, step 2 of 3: unpacking the weights.")
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise ModelLoadError(
            f"{gguf} cannot be read as a model ({_first_line(error)}): choose another file, or a "
            "directory with the model's original weights."
        ) from error
    report(f"{once}, step 3 of 3: saving to {directory.parent}.")
    tokenizer.save_pretrained(directory)
    _plain_model(model, generation).save_pretrained(directory)


def _plain_model(model: PreTrainedModel, generation: Mapping[str, float]) -> PreTrainedModel:
    """The same weights in a model that knows nothing of the packed file, which cannot be saved."""
    config = type(model.config).from_dict(model.config.to_dict())
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    if generation:
        plain.generation_config.update(do_sample=True, **generation)
    return plain


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
