"""A short name for a model's exact numbers, the same after a restart."""

from __future__ import annotations

import hashlib
import json

import torch
from transformers import PreTrainedModel

from engine.kv.schemes import KVScheme

_SAMPLES_PER_TENSOR = 64
# Says where a model came from or how it was saved, not what it computes.
_IRRELEVANT = ("_name_or_path", "_model_name_or_path", "transformers_version", "architectures")


def model_fingerprint(model: PreTrainedModel) -> str:
    """Hash of the configuration and of every weight's name, type, shape and some of its numbers."""
    digest = hashlib.blake2b(digest_size=16)
    settings = model.config.to_dict()
    for name in _IRRELEVANT:
        settings.pop(name, None)
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_sample_bytes(tensor))
    return digest.hexdigest()


def kv_identity(fingerprint: str, scheme: KVScheme, device_type: str, backend_name: str) -> str:
    """All that stored K and V of a prefix depend on, over a restart too.

    A key basis is learnt at each start and need not be the same again, though the model is. Other
    devices and back ends round otherwise.
    """
    parts = [fingerprint, scheme.name, device_type, backend_name]
    if scheme.key_basis is not None:
        digest = hashlib.blake2b(digest_size=16)
        for tensor in scheme.key_basis:
            digest.update(tensor.cpu().numpy().tobytes())
        parts.append(digest.hexdigest())
    return "/".join(parts)


def _sample_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().flatten()
    step = max(1, flat.numel() // _SAMPLES_PER_TENSOR)
    return flat[::step].contiguous().view(torch.uint8).cpu().numpy().tobytes()
