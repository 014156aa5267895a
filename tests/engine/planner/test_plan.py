"""The arithmetic: shares of the card, whole blocks, conversations, and what to change."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ConfigError
from engine.model.outline import ModelOutline
from engine.planner.advice import advice_for
from engine.planner.plan import GIB, MemoryPlan, MemoryWishes, estimate_work_space, plan_memory


def make_outline(**fields: Any) -> ModelOutline:
    """A billion parameters in bfloat16; KV of 64 KiB a token, half of it in int8."""
    values: dict[str, Any] = {
        "name": "team/model",
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "bytes_per_number": 2,
        "num_parameters": GIB,
        "num_active_parameters": GIB,
        "num_layers": 16,
        "num_attention_heads": 16,
        "num_kv_heads": 8,
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_active_experts": 1,
        "vocab_size": 32000,
        "trained_model_len": 4096,
        "max_model_len": 4096,
        "sliding_window": None,
        "kv_bytes_per_token": {"none": 65536, "int8": 32768, "int4": 16384},
    }
    return ModelOutline(**(values | fields))


def planned(gib: float = 4.0, outline: ModelOutline | None = None, **wishes: Any) -> MemoryPlan:
    wished = {"gpu_memory_utilization": 1.0} | wishes
    return plan_memory(outline or make_outline(), MemoryWishes(gpu_bytes=int(gib * GIB), **wished))


def test_what_is_left_is_for_kv() -> None:
    plan = planned(gpu_memory_utilization=0.75)
    assert plan.usable_bytes == 3 * GIB
    assert plan.pool_bytes == 3 * GIB - 2 * GIB - plan.work_space_bytes
    assert 0.5 * GIB < plan.work_space_bytes < 0.7 * GIB


def test_the_work_space_grows_with_the_step_and_with_visited_experts() -> None:
    usual = estimate_work_space(make_outline(), MemoryWishes(gpu_bytes=GIB))
    double = MemoryWishes(gpu_bytes=GIB, max_num_batched_tokens=2048)
    numbers_per_token = 4 * 2048 + (32 + 16) * 128 + 3 * 8192
    assert estimate_work_space(make_outline(), double) - usual == 1024 * 2 * numbers_per_token
    two_experts = make_outline(num_active_experts=2)
    difference = estimate_work_space(two_experts, MemoryWishes(gpu_bytes=GIB)) - usual
    assert difference == 1024 * 2 * 3 * 8192


def test_a_conversation_takes_whole_blocks_and_the_pool_one_block_more() -> None:
    int8 = planned(context=1000, concurrency=3).format_named("int8")
    assert int8.bytes_per_conversation == 1008 * 32768
    assert int8.needed_bytes == (3 * 1008 + 16) * 32768
    large = planned(context=1000, concurrency=3, block_size=512).format_named("int8")
    assert large.bytes_per_conversation == 1024 * 32768


@pytest.mark.parametrize("block_size", [8, 16, 512])
def test_as_many_fit_as_are_said_to_and_not_one_more(block_size: int) -> None:
    found = planned(context=3000, block_size=block_size).chosen.num_conversations
    assert found > 1
    for number, fits in ((found, True), (found + 1, False)):
        plan = planned(context=3000, block_size=block_size, concurrency=number)
        assert plan.chosen.fits is fits


def test_a_context_is_at_most_the_model_s() -> None:
    assert planned().context == 4096
    assert planned(context=100).context == 100
    assert planned(context=9999).context == 4096


def test_a_format_that_cannot_hold_the_heads_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"k8v4 cannot .* 128 numbers: use none, int8, int4"):
        planned(kv_format="k8v4")


def test_what_fits_says_how_much_is_to_spare() -> None:
    (sentence,) = advice_for(planned(8))
    assert sentence.startswith("It fits, with 5.3 GiB to spare: 43 conversations of 4,096 tokens")


def test_each_change_of_the_advice_makes_it_fit() -> None:
    plan = planned(4, concurrency=16)
    said = advice_for(plan)
    assert said[0].startswith("It does not fit: 16 conversations of 4,096 tokens need 2.0 GiB")
    assert any(
        sentence.startswith("--kv-cache-dtype int4: 1.0 GiB, which fits") for sentence in said
    )
    assert planned(4, concurrency=16, kv_format="int4").chosen.fits
    (context,) = (int(s.split()[1].rstrip(":")) for s in said if s.startswith("--max-model-len"))
    assert planned(4, concurrency=16, context=context).chosen.fits
    assert not planned(4, concurrency=16, context=context + 16).chosen.fits
    (number,) = (int(s.split()[1].rstrip(":")) for s in said if s.startswith("--max-num-seqs"))
    assert planned(4, concurrency=number).chosen.fits
    (swap_gib,) = (int(s.split()[1].rstrip(":")) for s in said if s.startswith("--swap-space"))
    assert swap_gib * GIB >= plan.chosen.needed_bytes - plan.pool_bytes
    assert said[-1].startswith("Weights in 8 bits would leave 1.0 GiB more")


def test_one_conversation_that_is_too_long_is_not_told_to_queue() -> None:
    outline = make_outline(max_model_len=131072, trained_model_len=131072)
    said = advice_for(planned(4, outline))
    assert not any(s.startswith(("--max-num-seqs", "--swap-space")) for s in said)
    assert any("int4: 2.0 GiB, which does not fit either, but comes closer" in s for s in said)


def test_a_little_more_of_the_card_is_offered_where_it_is_enough() -> None:
    number = planned(24, gpu_memory_utilization=0.9).chosen.num_conversations + 1
    said = advice_for(planned(24, gpu_memory_utilization=0.9, concurrency=number))
    assert any(s.startswith("--gpu-memory-utilization 0.95: 1.2 GiB more.") for s in said)


def test_weights_that_do_not_fit_are_the_first_thing_to_change() -> None:
    plan = planned(3, make_outline(dtype="float32", bytes_per_number=4))
    assert plan.pool_bytes == 0
    assert [other.num_conversations for other in plan.formats] == [0, 0, 0]
    said = advice_for(plan)
    assert said[0].startswith("The weights do not fit: with work space they take 4.7 GiB of 3.0.")
    assert said[1] == "--dtype bfloat16: the weights take 2.0 GiB."


def test_the_card_that_is_named_holds_the_model_and_a_conversation() -> None:
    said = advice_for(planned(2.0, gpu_memory_utilization=0.75))[0]
    gib = int(said.partition("A card of ")[2].split()[0])
    assert planned(gib, gpu_memory_utilization=0.75).chosen.fits
    assert not planned(gib - 1, gpu_memory_utilization=0.75).chosen.fits
