"""The basis keys are stored in: what is learnt, that it repeats, and that it is worth it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.attention.interface import AttentionMetadata
from engine.attention.reference import ReferenceAttention
from engine.config import EngineConfig
from engine.kv.key_basis import KeyBasis, hadamard_basis
from engine.model.assembly import RunnerFactory, with_key_basis
from engine.model.attention_hook import StepAttention, layer_windows
from engine.model.key_bases import learn_key_basis
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


def learn(model: PreTrainedModel, token_ids: list[int], max_model_len: int) -> KeyBasis:
    storage = make_factory(model).make_storage(2)
    return learn_key_basis(model, storage, token_ids, max_model_len=max_model_len, num_leading=2)


@pytest.mark.parametrize("architecture", ["llama", "phi3", "phimoe"])
def test_scores_of_a_query_all_shift_alike(architecture: str) -> None:
    model = tiny_model(architecture)
    basis = learn(model, TOKEN_IDS, CONTEXT)
    keys = keys_of(model, TOKEN_IDS)
    queries = torch.randn(7, model.config.num_attention_heads, keys.shape[-1])
    num_shared = queries.shape[1] // keys.shape[2]
    for layer, layer_keys in enumerate(keys):
        stored = basis.transform_keys(layer_keys, layer).repeat_interleave(num_shared, dim=1)
        expected = (layer_keys - basis.offsets[layer]).repeat_interleave(num_shared, dim=1)
        scores = torch.einsum("qhd,khd->hqk", basis.transform_queries(queries, layer), stored)
        wanted = torch.einsum("qhd,khd->hqk", queries, expected)
        torch.testing.assert_close(scores, wanted, atol=1e-4, rtol=1e-4)


def test_offsets_lie_among_the_keys_they_are_learnt_from() -> None:
    model = tiny_model("llama")
    at_the_start = learn(model, TOKEN_IDS, len(TOKEN_IDS)).offsets
    keys = keys_of(model, TOKEN_IDS)
    assert (at_the_start >= keys.amin(dim=1) - 1e-3).all()
    assert (at_the_start <= keys.amax(dim=1) + 1e-3).all()
    # Elsewhere keys are turned otherwise, so they have less in common.
    all_over = learn(model, TOKEN_IDS, CONTEXT).offsets
    assert 0.1 < all_over.norm() / at_the_start.norm() < 1.0


@pytest.mark.parametrize("num_tokens", [1, 3])
def test_the_shortest_contexts_have_a_basis_too(num_tokens: int) -> None:
    basis = learn(tiny_model("llama"), TOKEN_IDS[:num_tokens], num_tokens)
    assert all(part.isfinite().all() for part in basis)


def test_a_head_whose_keys_are_bad_is_only_rotated() -> None:
    model = tiny_model("llama")
    control = learn(model, TOKEN_IDS, CONTEXT)
    layer = model.model.layers[-1].self_attn
    head_dim = control.offsets.shape[-1]
    with torch.no_grad():
        layer.k_proj.weight[:head_dim] = torch.inf  # of the last layer's first head
    basis = learn(model, TOKEN_IDS, CONTEXT)
    plain = hadamard_basis(*control.offsets.shape)
    for own, other, rotation in zip(basis, control, plain, strict=True):
        assert torch.equal(own[-1, 0], rotation[-1, 0])
        assert torch.equal(own[-1, 1], other[-1, 1])
        assert torch.equal(own[:-1], other[:-1])


def test_places_beyond_the_first_rotary_table_are_read_under_the_second() -> None:
    model = model_of(longrope_config("phi3"))
    replace_long_rope(model)
    within, all_over = learn(model, TOKEN_IDS, 64), learn(model, TOKEN_IDS, CONTEXT)
    assert all_over.offsets.isfinite().all()
    assert not torch.equal(within.offsets, all_over.offsets)


def test_int4_loses_little_at_the_start_and_far_from_it(bundled_model: BundledModel) -> None:
    """Kullback-Leibler divergence from unquantized K and V; bench.kv_quality measures more."""
    model, tokenizer = bundled_model.model, bundled_model.tokenizer
    unlearnt = make_factory(model, scheme="int4", block_size=16)
    learnt = with_key_basis(unlearnt, tokenizer)
    token_ids = tokenizer.encode(Path(__file__).read_text())[:300]
    for first_position in (0, 3000):
        exact, *others = (
            log_probabilities(factory, token_ids, first_position)
            for factory in (make_factory(model, block_size=16), unlearnt, learnt)
        )
        without, divergence = (
            float((exact.exp() * (exact - other)).sum(dim=-1).mean()) for other in others
        )
        assert divergence < 0.03
        assert divergence < 0.5 * without


@torch.inference_mode()
def log_probabilities(
    factory: RunnerFactory, token_ids: list[int], first_position: int
) -> torch.Tensor:
    """[num_tokens, vocab_size] of a text whose first token is at a position."""
    num_tokens = len(token_ids)
    storage = factory.make_storage(-(-num_tokens // factory.block_size))
    ends = torch.tensor([0, num_tokens], dtype=torch.int32)
    metadata = AttentionMetadata(
        slot_mapping=torch.arange(num_tokens),
        query_starts=ends,
        context_lengths=ends[1:],
        block_tables=torch.arange(storage.num_blocks, dtype=torch.int32)[None],
    )
    attention = StepAttention(
        ReferenceAttention(storage),
        metadata,
        layer_windows(factory.model.config, factory.max_model_len),
    )
    output = factory.model(
        input_ids=torch.tensor([token_ids]),
        position_ids=first_position + torch.arange(num_tokens)[None],
        use_cache=False,
        step_attention=attention,
    )
    return output.logits[0].log_softmax(dim=-1)


def test_the_basis_is_part_of_what_blocks_are_known_by(tmp_path: Path) -> None:
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
