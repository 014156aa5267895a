"""What each KV format changes in the bundled model's predictions, within published bounds.

The shipped text is read token by token, cut to a length that keeps the suite fast;
`python -m bench.kv_quality` reads all 8,192 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.forced_texts import shipped_text
from bench.teacher_forcing import Fidelity, compare
from engine.config import EngineConfig
from engine.kv_quality import AUTO_BOUND, QualityTable
from engine.model.assembly import runner_factory
from tests.conftest import BundledModel

NUM_TOKENS = 640
SCHEMES = ("int8", "k8v4", "int4")


@pytest.fixture(scope="module")
def fidelity(bundled_model: BundledModel) -> Mapping[str, Fidelity]:
    model, tokenizer, _ = bundled_model
    factories = {
        name: runner_factory(EngineConfig(kv_cache_dtype=name), model, tokenizer)
        for name in ("none", *SCHEMES)
    }
    token_ids = tokenizer.encode(shipped_text())[:NUM_TOKENS]
    scores = compare(factories.pop("none"), factories, token_ids)
    return {name: found.between(0, NUM_TOKENS) for name, found in scores.items()}


def test_the_shipped_text_is_long_enough(bundled_model: BundledModel) -> None:
    assert len(bundled_model.tokenizer.encode(shipped_text())) >= 8192


def test_int8_is_as_good_as_unquantized(fidelity: Mapping[str, Fidelity]) -> None:
    assert fidelity["int8"].kld <= 0.0005
    assert fidelity["int8"].top1 >= 0.98


def test_k8v4_is_within_its_bound(fidelity: Mapping[str, Fidelity]) -> None:
    assert fidelity["k8v4"].kld <= 0.008


def test_br_09_each_format_is_within_what_is_published_of_it_or_refused(
    fidelity: Mapping[str, Fidelity],
) -> None:
    table = QualityTable()
    for name in SCHEMES:
        published = table.find("bundled", name)
        assert published is not None
        # A part of the text: its mean may lie above that of the whole.
        assert fidelity[name].kld <= 1.5 * published.kld
        is_refused = published.kld > AUTO_BOUND
        assert (table.warning("bundled", name) is not None) == is_refused
    assert table.choose("bundled") == "int8"
