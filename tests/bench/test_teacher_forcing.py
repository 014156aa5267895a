from __future__ import annotations

import math
import random

import torch
from torch.nn import functional

from bench.teacher_forcing import compare
from tests.equivalence import plain_model
from tests.runner_driver import make_factory
from tests.tiny_models import tiny_model

TOKEN_IDS = random.Random(11).choices(range(3, 60), k=75)


def plain_log_probabilities(model) -> torch.Tensor:
    with plain_model(model), torch.inference_mode():
        return model(torch.tensor([TOKEN_IDS])).logits[0, :-1].double().log_softmax(dim=-1)


def test_scores_are_those_of_plain_forward_passes() -> None:
    first, second = tiny_model("llama"), tiny_model("llama")
    with torch.no_grad():
        for weight in second.parameters():
            weight.mul_(1.05)
    scores = compare(
        make_factory(first), {"other": make_factory(second)}, TOKEN_IDS, chunk_tokens=16
    )["other"]
    expected, found = plain_log_probabilities(first), plain_log_probabilities(second)
    kld = functional.kl_div(found, expected, log_target=True, reduction="none").sum(dim=-1)
    assert kld.mean() > 1e-5
    assert torch.allclose(scores.kld, kld, rtol=1e-3, atol=1e-6)
    agrees = expected.argmax(dim=-1) == found.argmax(dim=-1)
    assert torch.equal(scores.agrees.bool(), agrees)
    loss = functional.nll_loss(found, torch.tensor(TOKEN_IDS[1:]))
    whole = scores.between(0, len(TOKEN_IDS))
    assert math.isclose(whole.perplexity, math.exp(loss), rel_tol=1e-5)
    assert math.isclose(scores.between(10, 20).kld, scores.kld[10:20].mean(), rel_tol=1e-9)


def test_unquantized_storage_changes_nothing_and_quantized_a_little() -> None:
    model = tiny_model("llama")
    versions = {name: make_factory(model, scheme=name) for name in ("none", "int8", "int4")}
    scores = compare(make_factory(model), versions, TOKEN_IDS, chunk_tokens=32)
    kld = {name: found.between(0, 100).kld for name, found in scores.items()}
    assert abs(kld["none"]) < 1e-6  # rounding of float32 sums over the vocabulary
    assert kld["none"] < kld["int8"] < kld["int4"]
