"""Sliding windows by layer, and models whose attention cannot be replaced."""

from __future__ import annotations

import pytest

from engine.errors import ModelLoadError
from engine.model.assembly import make_backend
from engine.model.attention_hook import layer_windows
from engine.model.warm_up import CountingAttention, check_model_runs
from tests.runner_driver import make_factory
from tests.tiny_models import tiny_config, tiny_model


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("llama", (None, None, None)),
        ("phi3", (None, None, None)),  # 300, longer than the context of 256
        ("phimoe", (24, 24, 24)),  # only in the configuration
        ("qwen3", (None, 20, 20)),  # by layer
        ("mixtral", (None, None, None)),
    ],
)
def test_windows_by_architecture(architecture: str, expected: tuple[int | None, ...]) -> None:
    assert layer_windows(tiny_config(architecture), 256) == expected


@pytest.mark.parametrize(("context", "window"), [(24, None), (25, 24)])
def test_a_window_as_long_as_the_context_is_none(context: int, window: int | None) -> None:
    assert layer_windows(tiny_config("phimoe"), context)[0] == window


def test_layers_of_another_kind_are_refused() -> None:
    config = tiny_config("llama")
    config.layer_types = ["full_attention", "linear_attention", "full_attention"]
    with pytest.raises(ModelLoadError, match="linear_attention, which Hearth does not support"):
        layer_windows(config, 256)


def test_a_model_that_passes_our_attention_by_is_refused() -> None:
    model = tiny_model("llama")
    model.set_attn_implementation("eager")
    factory = make_factory(model)
    storage = factory.make_storage(4)
    counting = CountingAttention(make_backend("reference", storage))
    runner = factory.make_runner(storage, counting)
    with pytest.raises(ModelLoadError, match="does not use the attention"):
        check_model_runs(runner, counting, num_layers=3, block_size=8)
