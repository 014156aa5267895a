"""Equal models share a fingerprint, different ones do not."""

from __future__ import annotations

import torch

from engine.model.fingerprint import model_fingerprint
from tests.tiny_models import tiny_model


def test_the_same_model_made_again_has_the_same_fingerprint() -> None:
    assert model_fingerprint(tiny_model("llama")) == model_fingerprint(tiny_model("llama"))


def test_weights_type_and_settings_count() -> None:
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    models = (
        tiny_model("llama"),
        tiny_model("llama", seed=1),
        tiny_model("llama").to(torch.bfloat16),
        tiny_model("llama", rope_parameters=rope),
        tiny_model("phi3"),
    )
    assert len({model_fingerprint(model) for model in models}) == len(models)


def test_the_attention_in_use_does_not_count() -> None:
    model = tiny_model("llama")
    before = model_fingerprint(model)
    model.set_attn_implementation("eager")
    assert model_fingerprint(model) == before
