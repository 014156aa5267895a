"""Mean keys of a sample of text: what is learnt, that it repeats, and that it is worth it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.config import EngineConfig
from engine.model.assembly import with_key_offsets
from engine.model.key_offsets import learn_key_offsets
from engine.model.loader import load_model
from engine.model.rope import replace_long_rope
from tests.conftest import BundledModel
from tests.runner_driver import RunnerDriver, make_factory
from tests.tiny_models import CONTEXT, longrope_config, model_of, tiny_model, tiny_tokenizer

TOKEN_IDS = [3, 5, 7, 3, 11, 2, 13, 17, 8, 5, 19, 4]


def keys_of(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """[num_layers, num_tokens, num_kv_heads, head_dim], as the model's attention gets them."""
    driver = RunnerDriver(make_factory(model))
    running = driver.start(token_ids)
    driver.step((running, len(token_ids)))
    return torch.stack(
        [
            driver.storage.read(layer, torch.tensor(running.block_ids), len(token_ids)).keys
            for layer in range(driver.storage.num_layers)
        ]
    )


@pytest.mark.parametrize("architecture", ["llama", "phi3", "phimoe"])
def test_offsets_are_the_mean_keys_all_over_the_context(architecture: str) -> None:
    model = tiny_model(architecture)
    storage = make_factory(model).make_storage(2)
    at_the_start = learn_key_offsets(model, storage, TOKEN_IDS, len(TOKEN_IDS))
    expected = keys_of(model, TOKEN_IDS).mean(dim=1)
    torch.testing.assert_close(at_the_start, expected, atol=1e-3, rtol=1e-3)
    all_over = learn_key_offsets(model, storage, TOKEN_IDS, CONTEXT)
    assert torch.equal(all_over, all_over.half().float())
    # Elsewhere keys are turned otherwise, so they have less in common.
    assert 0.1 < all_over.norm() / at_the_start.norm() < 1.0


@pytest.mark.parametrize("num_tokens", [1, 3])
def test_the_shortest_contexts_have_offsets_too(num_tokens: int) -> None:
    model = tiny_model("llama")
    storage = make_factory(model).make_storage(1)
    assert learn_key_offsets(model, storage, TOKEN_IDS[:num_tokens], num_tokens).isfinite().all()


def test_places_beyond_the_first_rotary_table_are_read_under_the_second() -> None:
    model = model_of(longrope_config("phi3"))
    storage = make_factory(model).make_storage(2)
    replace_long_rope(model)
    within = learn_key_offsets(model, storage, TOKEN_IDS, 64)
    all_over = learn_key_offsets(model, storage, TOKEN_IDS, CONTEXT)
    assert all_over.isfinite().all()
    assert not torch.equal(within, all_over)


def test_the_same_is_learnt_again_and_makes_keys_smaller(bundled_model: BundledModel) -> None:
    model, tokenizer = bundled_model.model, bundled_model.tokenizer
    factory = make_factory(model, scheme="int4", block_size=16)
    scheme, again = (with_key_offsets(factory, tokenizer).scheme for _ in range(2))
    assert scheme.key_offsets is not None
    assert again.key_offsets is not None
    assert torch.equal(scheme.key_offsets, again.key_offsets)
    keys = keys_of(model, tokenizer.encode(Path(__file__).read_text())[:150])
    errors = []
    for tried, shifts in ((factory.scheme, 0), (scheme, scheme.key_offsets[:, None])):
        stored = torch.stack(
            [
                tried.keys.decode(*tried.encode_keys(layer_keys, layer))
                for layer, layer_keys in enumerate(keys)
            ]
        )
        errors.append((tried.rotate_back(stored) + shifts - keys).square().mean())
    assert errors[1] < 0.8 * errors[0]


def test_offsets_are_part_of_what_blocks_are_known_by(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    identities = [
        load_model(
            EngineConfig(model=str(tmp_path), kv_cache_dtype=name, num_gpu_blocks_override=40),
            lambda sentence: None,
        ).info.kv_identity
        for name in ("int8", "k8v4", "int4", "int4")
    ]
    assert identities[2] == identities[3]
    assert len(set(identities)) == 3
