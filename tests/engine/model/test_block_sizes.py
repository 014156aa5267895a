"""What a model says does not depend on how its positions are cut into blocks."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel

from engine.config import EngineConfig
from tests.equivalence import count_close_calls
from tests.runner_driver import RunnerDriver, make_factory
from tests.tiny_models import VOCAB_SIZE, tiny_model

SCHEMES = ("none", "int8", "k8v4", "int4")
ONE_BLOCK = 512  # longer than the model's context
TOKEN_IDS = torch.randint(VOCAB_SIZE, (250,), generator=torch.Generator().manual_seed(8)).tolist()


@pytest.fixture(scope="module", params=["llama", "phi3"])
def tiny(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param)


def make_driver(model: PreTrainedModel, scheme: str, backend: str, block_size: int) -> RunnerDriver:
    factory = make_factory(model, scheme=scheme, backend=backend, block_size=block_size)
    return RunnerDriver(factory, num_blocks=80 + 10_000 // block_size)


def logits_in_two_steps(driver: RunnerDriver, length: int) -> torch.Tensor:
    """The last five tokens of a prompt on the blocks of those before."""
    running = driver.start(TOKEN_IDS[:length])
    driver.step((running, length - 5))
    return driver.logits(TOKEN_IDS[:length], after=running, num_cached=length - 5)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("block_size", [8, 16, 32, 64])
def test_every_residue_of_the_prompt_gives_the_logits_of_one_block(
    tiny: PreTrainedModel, scheme: str, block_size: int
) -> None:
    ours = make_driver(tiny, scheme, "numba", block_size)
    whole = make_driver(tiny, scheme, "numba", ONE_BLOCK)
    for length in range(64, 64 + block_size):
        prompt = TOKEN_IDS[:length]
        assert torch.equal(ours.logits(prompt), whole.logits(prompt)), length


@pytest.mark.parametrize("scheme", SCHEMES)
def test_first_tokens_at_every_residue_equal_the_reference_s_on_one_block(
    tiny: PreTrainedModel, scheme: str
) -> None:
    ours = make_driver(tiny, scheme, "numba", 8)
    reference = make_driver(tiny, scheme, "reference", ONE_BLOCK)
    close = 0
    for length in range(40, 48):
        prompt = TOKEN_IDS[:length]
        wanted = reference.reply(prompt, 3)
        close += count_close_calls(reference.logits, prompt, ours.reply(prompt, 3), wanted)
    assert close <= 1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("block_size", [8, 16, 32, 64, 128, 256, 512])
def test_both_back_ends_take_every_block_size(
    tiny: PreTrainedModel, scheme: str, block_size: int
) -> None:
    EngineConfig(block_size=block_size)
    for backend in ("numba", "reference"):
        ours, whole = (make_driver(tiny, scheme, backend, size) for size in (block_size, ONE_BLOCK))
        for length in (6, 129, 250):
            found, expected = (logits_in_two_steps(driver, length) for driver in (ours, whole))
            assert torch.equal(found, expected), (backend, length)
