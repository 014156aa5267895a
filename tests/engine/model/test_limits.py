"""Context, end tokens, vocabulary and pool: what a model allows, from every place that says so."""

from __future__ import annotations

import pytest
from transformers import GenerationConfig

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.model.limits import (
    PoolSize,
    cpu_pool_bytes,
    resolve_eos_token_ids,
    resolve_generation_defaults,
    resolve_max_model_len,
    resolve_vocab_size,
    size_pool,
)
from tests.tiny_models import TURN_TEMPLATE, longrope_config, tiny_config, tiny_tokenizer

GIB = 1024**3


@pytest.mark.parametrize(("asked", "expected"), [(None, 256), (256, 256), (100, 100)])
def test_context_is_the_trained_one_or_less(asked: int | None, expected: int) -> None:
    assert resolve_max_model_len(tiny_config("llama"), asked) == expected


def test_a_context_beyond_the_trained_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"257 is more than the 256 tokens .* use at most 256"):
        resolve_max_model_len(tiny_config("llama"), 257)


def test_br_12_longrope_context_is_the_trained_one() -> None:
    config = longrope_config("phi3")
    assert resolve_max_model_len(config, None) == 256
    assert resolve_max_model_len(config, 200) == 200
    with pytest.raises(ConfigError, match="257 is more than the 256 tokens"):
        resolve_max_model_len(config, 257)


@pytest.mark.parametrize("rope_type", ["longrope", "dynamic"])
def test_br_12_a_table_that_changes_in_some_layers_only_is_never_left(rope_type: str) -> None:
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    changing = {"rope_type": rope_type, "factor": 4.0, "original_max_position_embeddings": 64}
    config = tiny_config("llama")
    config.rope_parameters = {"full_attention": changing, "sliding_attention": plain}
    expected = 64 if rope_type == "longrope" else 256
    assert resolve_max_model_len(config, None) == expected
    with pytest.raises(ConfigError, match=f"{expected + 1} is not possible: beyond {expected} "):
        resolve_max_model_len(config, expected + 1)


def test_br_12_dynamic_rope_is_held_to_the_length_with_one_table() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    config = tiny_config("llama", rope_parameters=rope)
    assert resolve_max_model_len(config, None) == 256
    with pytest.raises(ConfigError, match=r"300 is not possible: .* \(dynamic NTK\), .* most 256"):
        resolve_max_model_len(config, 300)


def test_linear_rope_has_one_table_and_no_cap() -> None:
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    assert resolve_max_model_len(tiny_config("llama", rope_parameters=rope), None) == 256


@pytest.mark.parametrize(
    ("in_config", "in_generation", "expected"),
    [
        (7, None, {7, 41}),
        ([7, 8], None, {7, 8, 41}),
        (None, [9, 10], {9, 10, 41}),
        (7, 9, {7, 9, 41}),
        (None, None, {41}),
    ],
)
def test_br_16_end_tokens_of_every_source_count(
    in_config: int | list[int] | None,
    in_generation: int | list[int] | None,
    expected: set[int],
) -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.eos_token_id == 41
    config = tiny_config("llama", eos_token_id=in_config)
    generation = GenerationConfig(eos_token_id=in_generation)
    assert resolve_eos_token_ids(config, generation, tokenizer) == expected
    assert resolve_eos_token_ids(config, None, tokenizer) >= {41}


def test_br_16_the_template_s_end_of_turn_is_an_end_token() -> None:
    tokenizer = tiny_tokenizer(chat_template=TURN_TEMPLATE)
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    assert resolve_eos_token_ids(tiny_config("llama"), None, tokenizer) == {41, end}


@pytest.mark.parametrize(
    "template",
    [
        "{% for message in messages %}{{ message['content'] }} w3 {% endfor %}",
        "{% for message in messages %}{{ message['content'] }}{% endfor %}",
        "{{ raise_exception('no conversation is good enough') }}",
    ],
)
def test_ordinary_text_after_a_turn_is_no_end_token(template: str) -> None:
    tokenizer = tiny_tokenizer(chat_template=template)
    assert resolve_eos_token_ids(tiny_config("llama"), None, tokenizer) == {41}


def test_br_29_padding_of_the_vocabulary_is_left_out_and_added_tokens_are_not() -> None:
    tokenizer = tiny_tokenizer()  # 41 words, 5 added
    assert resolve_vocab_size(tiny_config("llama"), tokenizer) == 46
    assert resolve_vocab_size(tiny_config("llama", vocab_size=44), tokenizer) == 44


def test_generation_defaults_are_those_that_are_set() -> None:
    generation = GenerationConfig(temperature=0.6, top_k=20, do_sample=True)
    assert resolve_generation_defaults(generation) == {"temperature": 0.6, "top_k": 20}
    assert resolve_generation_defaults(GenerationConfig()) == {}
    assert resolve_generation_defaults(None) == {}


def test_greedy_authors_recommend_temperature_0() -> None:
    greedy = GenerationConfig(do_sample=False, top_k=40)
    assert resolve_generation_defaults(greedy) == {"temperature": 0.0, "top_k": 40}


def test_what_no_request_may_have_is_not_recommended() -> None:
    odd = GenerationConfig(do_sample=True, temperature=3.0, top_p=0.0, top_k=20)
    assert resolve_generation_defaults(odd) == {"top_k": 20}


@pytest.mark.parametrize(("free", "expected"), [(8 * GIB, 2 * GIB), (23 * GIB, 4 * GIB)])
def test_cpu_pool_is_a_quarter_of_free_memory_up_to_four_gib(free: int, expected: int) -> None:
    assert cpu_pool_bytes(free) == expected


def sized(available_bytes: int, max_model_len: int = 256, **settings: int) -> PoolSize:
    config = EngineConfig(block_size=16, **settings)  # type: ignore[arg-type]
    return size_pool(
        config,
        max_model_len=max_model_len,
        bytes_per_token=100,
        available_bytes=available_bytes,
    )


def test_pool_takes_what_is_available_unless_told_otherwise() -> None:
    assert sized(100 * 1600 + 7) == PoolSize(100, 256)
    assert sized(0, kv_cache_memory_bytes=50 * 1600) == PoolSize(50, 256)
    assert sized(0, kv_cache_memory_bytes=50 * 1600, num_gpu_blocks_override=20) == PoolSize(
        20, 256
    )


def test_pool_of_one_sequence_and_one_block_to_copy_is_enough() -> None:
    assert sized(0, num_gpu_blocks_override=17, max_model_len=256) == PoolSize(17, 256)


def test_a_small_pool_lowers_a_context_that_nobody_asked_for() -> None:
    assert sized(11 * 1600) == PoolSize(11, 160)


@pytest.mark.parametrize("num_blocks", [16, 1])
def test_a_small_pool_is_refused_when_the_context_was_asked_for(num_blocks: int) -> None:
    config = EngineConfig(max_model_len=256, num_gpu_blocks_override=num_blocks)
    with pytest.raises(ConfigError, match=rf"{num_blocks} blocks .* takes 17 \(27,200 bytes\)"):
        size_pool(config, max_model_len=256, bytes_per_token=100, available_bytes=0)


def test_a_pool_without_room_for_anything_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"room for 1 blocks .* --kv-cache-memory-bytes"):
        sized(1600)
