"""Rotary tables chosen token by token, against the modules they replace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from engine.errors import ModelLoadError
from engine.model.rope import LongRope, long_rope_length, long_ropes, replace_long_rope
from tests.equivalence import PhimoeRope
from tests.tiny_models import longrope_config, model_of, tiny_config, tiny_model

SHORT = torch.arange(64)[None]
LONG = torch.arange(200)[None]
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("phi3", {}),
    "phi4-mini": ("phi3", {"partial_rotary_factor": 0.75}),
    "llama": ("llama", {}),
    "phimoe": ("phimoe", {}),
}


@pytest.fixture(params=VARIANTS, scope="module")
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    architecture, changes = VARIANTS[request.param]
    return model_of(longrope_config(architecture, **changes))


def only_rope(model: PreTrainedModel) -> LongRope:
    (rope,) = long_ropes(model)
    return rope


def computed(
    rope: LongRope,
    positions: torch.Tensor,
    tables: torch.Tensor,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    rope.table_indices = tables
    return rope(torch.zeros(1, 1, dtype=dtype), positions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_br_12_short_sequences_get_the_stock_module_s_bits(
    model: PreTrainedModel, dtype: torch.dtype
) -> None:
    rope = only_rope(model)
    expected = rope.stock(torch.zeros(1, 1, dtype=dtype), SHORT)
    ours = computed(rope, SHORT, torch.zeros_like(SHORT), dtype)
    assert ours[0].dtype == ours[1].dtype == dtype
    assert torch.equal(ours[0], expected[0])
    assert torch.equal(ours[1], expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_br_12_long_sequences_get_the_long_table(
    model: PreTrainedModel, dtype: torch.dtype
) -> None:
    rope = only_rope(model)
    # PhiMoE's own module keeps the short factors there, with the scale of the long ones.
    right = PhimoeRope(model.config) if model.config.model_type == "phimoe" else rope.stock
    expected = right(torch.zeros(1, 1, dtype=dtype), LONG)
    ours = computed(rope, LONG, torch.ones_like(LONG), dtype)
    assert torch.allclose(ours[0], expected[0], atol=1e-5)
    assert torch.allclose(ours[1], expected[1], atol=1e-5)
    assert not torch.allclose(ours[1], computed(rope, LONG, torch.zeros_like(LONG), dtype)[1])


def test_phimoe_s_plain_module_equals_the_stock_one_while_it_is_right() -> None:
    rope = only_rope(model_of(longrope_config("phimoe")))
    plain, stock = PhimoeRope(rope.stock.config), rope.stock  # type: ignore[arg-type]
    for ours, theirs in zip(
        plain(torch.zeros(1), SHORT), stock(torch.zeros(1), SHORT), strict=True
    ):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_tokens_of_both_regimes_do_not_see_each_other(model: PreTrainedModel) -> None:
    rope = only_rope(model)
    positions = torch.cat((SHORT, LONG), dim=1)
    tables = torch.cat((torch.zeros_like(SHORT), torch.ones_like(LONG)), dim=1)
    together = computed(rope, positions, tables)
    short = computed(rope, SHORT, torch.zeros_like(SHORT))
    long = computed(rope, LONG, torch.ones_like(LONG))
    for packed, first, second in zip(together, short, long, strict=True):
        assert torch.equal(packed, torch.cat((first, second), dim=1))


def test_the_original_length_is_read_where_the_model_has_it() -> None:
    assert long_rope_length(longrope_config("phi3")) == 64
    assert long_rope_length(longrope_config("phimoe")) == 64
    assert long_rope_length(tiny_config("llama")) is None
    rope = longrope_config("phi3").rope_parameters | {"original_max_position_embeddings": 32}
    inside = tiny_config("llama", rope_parameters=rope)
    assert long_rope_length(inside) == 32


def test_other_models_keep_their_modules() -> None:
    model = tiny_model("llama")
    before = model.model.rotary_emb
    replace_long_rope(model)
    assert model.model.rotary_emb is before


def test_a_rotation_of_another_layout_is_refused() -> None:
    model = model_of(longrope_config("phi3"))
    stock = only_rope(model).stock

    class Interleaved(torch.nn.Module):
        rope_type = "longrope"

        def forward(
            self, x: torch.Tensor, position_ids: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            cosine, sine = stock(x, position_ids)
            half = cosine.shape[-1] // 2
            first = cosine[..., :half].repeat_interleave(2, dim=-1)
            return first, sine[..., :half].repeat_interleave(2, dim=-1)

    model.model.rotary_emb = Interleaved()
    with pytest.raises(ModelLoadError, match="Phi3ForCausalLM uses LongRoPE in a way that Hearth"):
        replace_long_rope(model)


def test_a_model_that_hides_its_rotation_is_refused() -> None:
    model = model_of(longrope_config("phi3"))
    model.model.rotary_emb = torch.nn.Identity()
    with pytest.raises(ModelLoadError, match="choose a model whose layers all rotate"):
        replace_long_rope(model)
