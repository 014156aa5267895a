"""A short name for a model's exact numbers, the same after a restart."""

from __future__ import annotations

import hashlib
import json

import torch
from transformers import PreTrainedModel

from engine.kv.key_basis import KeyBasis

_SAMPLES_PER_TENSOR = 64
# Says where a model came from or how it was saved, not what it computes.
_IRRELEVANT = ("_name_or_path", "_model_name_or_path", "transformers_version", "architectures")


def model_fingerprint(model: PreTrainedModel, key_basis: KeyBasis | None = None) -> str:
    """Hash of the configuration and of every weight's name, type, shape and some of its numbers.

    Also of the basis that keys are stored in, where they have one of their own.
    """
    digest = hashlib.blake2b(digest_size=16)
    settings = model.config.to_dict()
    for name in _IRRELEVANT:
        settings.pop(name, None)
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_sample_bytes(tensor))
    for part in key_basis or ():
        digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()


def _sample_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().flatten()
    step = max(1, flat.numel() // _SAMPLES_PER_TENSOR)
    return flat[::step].contiguous().view(torch.uint8).cpu().numpy().tobytes()
