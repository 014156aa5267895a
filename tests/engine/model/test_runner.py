"""One step on a tiny model: copies, sampling, padding of the vocabulary, random streams."""

from __future__ import annotations

import pytest
import torch

from engine.batch import BlockCopy, ScheduledBatch, ScheduledRequest, StepResult
from engine.sampling_params import SamplingParams
from tests.runner_driver import RunnerDriver, make_factory, make_request
from tests.tiny_models import tiny_model

PROMPT = list(range(30, 50))


def test_an_empty_batch_runs_nothing() -> None:
    driver = RunnerDriver(make_factory(tiny_model("llama")))
    assert driver.runner.execute(ScheduledBatch(())) == StepResult({})


def test_a_step_without_sampling_returns_nothing_and_still_computes() -> None:
    driver = RunnerDriver(make_factory(tiny_model("llama")))
    whole = driver.reply(PROMPT, 4)
    running = driver.start(PROMPT)
    part = ScheduledRequest(running.request, 0, 12, running.block_ids, samples=False)
    assert driver.runner.execute(ScheduledBatch((part,))) == StepResult({})
    running.num_computed = 12
    driver.generate([running], 4)
    assert running.output == whole


def test_blocks_are_copied_before_the_step() -> None:
    driver = RunnerDriver(make_factory(tiny_model("llama"), scheme="int8"))
    whole = driver.reply(PROMPT, 4)
    first = driver.start(PROMPT[:12], room=0)
    driver.step((first, 12))
    second = driver.start(PROMPT)
    shared, copied = first.block_ids
    second.block_ids = (shared, *second.block_ids[1:])
    second.num_computed = 12
    driver.step((second, 8), copies=(BlockCopy(copied, second.block_ids[1], 4),))
    driver.generate([second], 4)
    assert second.output == whole


def test_br_29_padding_ids_are_never_sampled() -> None:
    model = tiny_model("phimoe")
    with torch.no_grad():
        model.lm_head.bias[150:] += 1000.0
    driver = RunnerDriver(make_factory(model, vocab_size=150))
    samplings = (SamplingParams(temperature=0.0), SamplingParams(temperature=2.0, seed=1))
    requests = [driver.start(PROMPT, sampling=sampling) for sampling in samplings]
    driver.generate(requests, 12)
    assert max(requests[0].output + requests[1].output) < 150


def test_br_24_unseeded_equal_prompts_in_one_batch_differ_and_repeat_after_a_restart() -> None:
    outputs = []
    for _ in range(2):
        driver = RunnerDriver(make_factory(tiny_model("llama")))
        sampling = SamplingParams(temperature=1.5)
        requests = [driver.start(PROMPT, sampling=sampling) for _ in range(4)]
        driver.generate(requests, 16)
        outputs.append([running.output for running in requests])
    assert len({tuple(output) for output in outputs[0]}) == 4
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("num_neighbours", [0, 1, 7])
def test_br_24_a_seed_holds_beside_unseeded_neighbours(num_neighbours: int) -> None:
    seeded = SamplingParams(temperature=0.8, seed=42)
    driver = RunnerDriver(make_factory(tiny_model("llama")))
    alone = driver.start(PROMPT, sampling=seeded)
    driver.generate([alone], 16)
    driver = RunnerDriver(make_factory(tiny_model("llama")))
    neighbours = [
        driver.start(PROMPT[:5], sampling=SamplingParams(temperature=0.8))
        for _ in range(num_neighbours)
    ]
    joined = driver.start(PROMPT, sampling=seeded)
    driver.generate([*neighbours, joined], 16)
    assert joined.output == alone.output


def test_a_request_with_broken_kv_fails_alone() -> None:
    driver = RunnerDriver(make_factory(tiny_model("llama"), scheme="int8"))
    good, bad = driver.start(PROMPT), driver.start(PROMPT)
    driver.step((good, 20), (bad, 20))
    assert driver.storage.keys.scales is not None
    driver.storage.keys.scales[1, bad.block_ids[0], 0, 3] = torch.nan
    parts = [
        ScheduledRequest(running.request, 20, 1, running.block_ids, samples=True)
        for running in (good, bad)
    ]
    result = driver.runner.execute(ScheduledBatch(tuple(parts)))
    assert list(result.sampled) == [good.request.request_id]
    assert list(result.failed) == [bad.request.request_id]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_run(dtype: torch.dtype) -> None:
    model = tiny_model("llama", initializer_range=0.05).to(dtype)
    driver = RunnerDriver(make_factory(model, scheme="int8"))
    assert len(driver.reply(PROMPT, 4, chunk=7)) == 4


def test_a_request_with_more_logprobs_gets_them_from_its_own_row() -> None:
    driver = RunnerDriver(make_factory(tiny_model("llama")))
    running = driver.start(PROMPT)
    logits = driver.logits(PROMPT)
    request = make_request("r", PROMPT, SamplingParams(temperature=0.0, logprobs=2))
    part = ScheduledRequest(request, 0, 20, running.block_ids, samples=True)
    token = driver.runner.execute(ScheduledBatch((part,))).sampled["r"]
    assert token.logprobs is not None
    expected = logits.log_softmax(-1).topk(2)
    assert [entry.token_id for entry in token.logprobs.top] == expected.indices.tolist()
    assert token.logprobs.chosen.logprob == pytest.approx(float(expected.values[0]), abs=1e-4)


def test_the_check_of_the_device_raises_where_nothing_can_be_computed() -> None:
    driver = RunnerDriver(make_factory(tiny_model("llama")))
    driver.runner.check_device()
    driver.runner._model = tiny_model("llama").to("meta")  # has no numbers
    with pytest.raises((RuntimeError, NotImplementedError)):
        driver.runner.check_device()
