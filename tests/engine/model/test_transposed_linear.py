"""The other way round gives the same numbers, in the same shapes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.model.transposed_linear import TransposedLinear, is_worthwhile, transpose_linears
from tests.tiny_models import tiny_model


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (1, 40), (3, 5), (7,)])
def test_it_equals_the_layer_it_stands_for(shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(3)
    linear = nn.Linear(48, 80, bias=has_bias)
    inputs = torch.randn(*shape, 48)
    outputs = TransposedLinear(linear)(inputs)
    assert outputs.shape == (*shape, 80)
    torch.testing.assert_close(outputs, linear(inputs), rtol=1e-5, atol=1e-5)


def test_only_plain_linear_layers_are_replaced_and_weights_stay_tied() -> None:
    class Router(nn.Linear):
        pass

    model = nn.ModuleDict({"a": nn.Linear(4, 4), "router": Router(4, 4), "b": nn.Linear(4, 4)})
    model["b"].weight = model["a"].weight
    transpose_linears(model)
    assert isinstance(model["a"], TransposedLinear)
    assert type(model["router"]) is Router
    assert model["a"].weight is model["b"].weight


@pytest.mark.parametrize("architecture", ["llama", "phi3", "phimoe", "qwen3", "mixtral"])
def test_a_model_with_replaced_layers_gives_the_same_logits(architecture: str) -> None:
    model = tiny_model(architecture)
    model.set_attn_implementation("eager")
    ids = torch.arange(2, 30)[None]
    with torch.inference_mode():
        expected = model(ids).logits
        transpose_linears(model)
        torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-4)


def test_other_types_than_float32_are_left_to_pytorch() -> None:
    assert not is_worthwhile(tiny_model("llama").to(torch.bfloat16))
