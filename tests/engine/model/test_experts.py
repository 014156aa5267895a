"""Experts' rows keep their bits whatever the load, and their values equal Transformers' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from engine.kv.schemes import kv_scheme
from engine.model.assembly import row_multiple
from engine.model.experts import IMPLEMENTATION, experts_of, is_plain, use_padded_experts
from tests.tiny_models import tiny_model

COUNTS = (1, 2, 3, 5, 7, 16, 31, 64, 200)


@pytest.fixture(params=["phimoe", "mixtral"], scope="module")
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param, hidden_size=128, intermediate_size=112)


class Work:
    """Rows, the experts that they choose, and the weights of these."""

    def __init__(self, module: Any, seed: int, num_rows: int = 200) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.rows = torch.randn(num_rows, module.down_proj.shape[1], generator=generator)
        scores = torch.rand(num_rows, module.num_experts, generator=generator)
        self.weights, self.chosen = scores.topk(2)

    def outputs(self, module: Any, which: Sequence[int] | slice) -> torch.Tensor:
        with torch.inference_mode():
            return module(self.rows[which], self.chosen[which], self.weights[which])


@pytest.mark.parametrize("seed", range(3))
def test_a_row_has_the_same_bits_beside_any_others(model: PreTrainedModel, seed: int) -> None:
    use_padded_experts(model, True)
    module = experts_of(model)[0]
    work = Work(module, seed)
    everything = work.outputs(module, slice(None))
    generator = torch.Generator().manual_seed(seed)
    for count in COUNTS:
        which = torch.randperm(200, generator=generator)[:count].tolist()
        assert torch.equal(work.outputs(module, which), everything[which]), count


def test_an_expert_that_everybody_or_nobody_chose_changes_nothing(model: PreTrainedModel) -> None:
    use_padded_experts(model, True)
    module = experts_of(model)[0]
    work = Work(module, seed=4)
    alone = work.outputs(module, [0])
    work.chosen[1:] = work.chosen[0]
    assert torch.equal(work.outputs(module, slice(None))[:1], alone)
    work.chosen[1:] = (work.chosen[0] + 2) % module.num_experts
    assert torch.equal(work.outputs(module, slice(None))[:1], alone)


def test_values_are_those_of_transformers(model: PreTrainedModel) -> None:
    work = Work(experts_of(model)[0], seed=5)
    use_padded_experts(model, True)
    ours = work.outputs(experts_of(model)[0], slice(None))
    model.set_experts_implementation("eager")
    theirs = work.outputs(experts_of(model)[0], slice(None))
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max()))


def test_padding_is_for_formats_that_amplify_rounding(model: PreTrainedModel) -> None:
    row_multiple(model, kv_scheme("int8"))
    assert model.config._experts_implementation == IMPLEMENTATION
    row_multiple(model, kv_scheme("none"))
    assert model.config._experts_implementation == "grouped_mm"


def test_models_without_experts_are_left_alone() -> None:
    model = tiny_model("llama")
    before = model.config._experts_implementation
    use_padded_experts(model, True)
    assert experts_of(model) == []
    assert model.config._experts_implementation == before


def test_experts_of_another_make_keep_transformers_way(model: PreTrainedModel) -> None:
    module: Any = experts_of(model)[-1]
    module.has_bias = True
    try:
        assert not is_plain(module)
        use_padded_experts(model, True)
        assert model.config._experts_implementation == "grouped_mm"
    finally:
        module.has_bias = False
