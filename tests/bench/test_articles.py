"""The articles' experiments, small, on an engine without a model; and `generate` on a tiny one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.articles import batches, hit_rate, lengths, long_text, memory, subjects
from bench.articles.__main__ import NAMES, _parser
from bench.articles.baseline import sequential_model
from bench.articles.hit_rate import Reading, _thinned
from bench.articles.machine import MachineUse
from bench.articles.runs import Answer, Hearth, Prompts, Run
from bench.articles.scale import QUICK, Scale, scale_of
from bench.articles.section import print_section
from bench.engines import running_engine
from tests.tiny_models import TURN_TEMPLATE, tiny_model, tiny_tokenizer
from tests.tokenizer_factories import save_qwen3_tokenizer
from tests.web_factories import SlowRunner, chat_engine

SMALL = replace(
    QUICK,
    batch_sizes=(1, 3),
    prompt_tokens=20,
    reply_tokens=5,
    input_lengths=(16, 40, 2000),
    turn_tokens=6,
    long_tokens=40,
    subject_tokens=6,
    num_chats=2,
    num_chat_turns=2,
)


@pytest.fixture(scope="module")
def hearth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hearth]:
    tokenizer = save_qwen3_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    with chat_engine(tokenizer, SlowRunner(0.002)) as engine:
        yield Hearth(engine)


def earlier(num_tokens: int = 10) -> Run:
    answers = (Answer(num_tokens, 0, 1.0, 1.0),)
    return Run(1.0, answers, MachineUse(2_000_000_000, 50.0))


def test_all_prompts_are_answered_to_the_last_token(hearth: Hearth) -> None:
    prompts = Prompts(hearth.info.vocab_size, seed=1).make(4, 30)
    assert len(set(prompts)) == 4
    run = hearth.answer(prompts, 7)
    assert [answer.num_tokens for answer in run.answers] == [7] * 4
    assert run.tokens_per_s == pytest.approx(28 / run.wall_s)
    assert 0 < run.answers[0].ttft_s < run.answers[0].total_s <= run.wall_s + 0.05
    again = hearth.answer([(*prompts[0], 3)], 1)
    assert again.answers[0].num_cached_tokens == 30


def test_batches_are_compared_with_generate(hearth: Hearth) -> None:
    section = batches.measure(hearth, SMALL, earlier())
    assert [row[0] for row in section.rows][1:] == ["Hearth, 1 at once", "Hearth, 3 at once"]
    rates = section.figures["tokens_per_s_by_batch"]
    assert rates["3"] > rates["1"]
    assert section.figures["best_factor"] == pytest.approx(rates["3"] / 10, abs=0.02)


def test_input_lengths_beyond_the_context_are_left_out(hearth: Hearth) -> None:
    section = lengths.measure(hearth, SMALL)
    assert [row[:2] for row in section.rows] == [[16, 256], [40, 102]]
    assert section.figures["best_batch_by_input_length"] == {"16": 3, "40": 3}


def test_a_long_text_ends_with_the_context_and_says_so(hearth: Hearth) -> None:
    short = long_text.measure(hearth, SMALL, earlier(40))
    assert short.figures["num_tokens"] == 40
    assert not any("context ends" in claim for claim in short.claims)
    cut = long_text.measure(hearth, replace(SMALL, long_tokens=50), earlier(40))
    assert cut.claims[-1] == "This model's context ends after 40 of 50 tokens."


def test_eight_people_ask_at_once(hearth: Hearth) -> None:
    section = subjects.measure(hearth, SMALL, earlier())
    assert len(set(subjects.SUBJECTS)) == 8
    assert section.figures["tokens_per_s"] > 0
    assert section.rows[0][1] == f"{8 * 6 / 10:.1f}"  # reckoned at 10 tokens a second


def test_the_hit_rate_rises_with_the_turns(
    hearth: Hearth, capsys: pytest.CaptureFixture[str]
) -> None:
    section = hit_rate.measure(hearth, SMALL)
    shares = [share for _, share in section.figures["over_time"]]
    assert 0.3 < section.figures["hit_rate"] < 1
    assert shares[-1] == section.figures["hit_rate"] == max(shares)
    print_section(section)
    assert "## Article B, hit rate over time: 2 chats of 2 turns" in capsys.readouterr().out


def test_readings_are_thinned_to_a_dozen_with_the_last() -> None:
    readings = [Reading(float(number), 10 * (number // 2), 5, 0) for number in range(100)]
    kept = _thinned(readings)
    assert len(kept) <= 12
    assert kept[-1].num_prompt_tokens == 490
    assert _thinned(readings[:4]) == [readings[2]]


def test_memory_needs_a_configuration_only() -> None:
    model = str(Path(__file__).parents[1] / "data" / "phi_mini_moe.json")
    section = memory.measure(replace(SMALL, model=model))
    assert section.rows[0][:3] == ["4,096", "2.00 GiB", 7]
    assert section.figures["conversations"]["4096"]["int8"] == 26


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Scale()),
        (["--quick"], QUICK),
        (["--quick", "--model", "m", "--gpu-gib", "48"], replace(QUICK, model="m", gpu_gib=48.0)),
        (["--tokens", "200"], replace(Scale(), long_tokens=200, subject_tokens=200)),
    ],
)
def test_the_scale_is_as_asked(arguments: list[str], expected: Scale) -> None:
    assert scale_of(_parser().parse_args(arguments)) == expected


def test_single_experiments_can_be_chosen() -> None:
    assert _parser().parse_args(["--only", "blocks", "--only", "long"]).only == ["blocks", "long"]
    with pytest.raises(SystemExit):
        _parser().parse_args(["--only", "nothing"])
    assert len(NAMES) == 8


def test_generate_and_an_engine_answer_the_same_prompts(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    tiny_tokenizer(chat_template=TURN_TEMPLATE).save_pretrained(tmp_path)
    scale = replace(SMALL, model=str(tmp_path))
    with sequential_model(scale.engine_config()) as model:
        runs = [module.before(model, scale) for module in (batches, long_text, subjects)]
    assert [run.answers[0].num_tokens for run in runs] == [5, 40, 6]
    assert runs[0].answers[1].total_s > runs[0].answers[0].total_s  # it waited for the first
    assert runs[0].machine.memory_bytes
    with running_engine(scale.engine_config(kv_cache_memory_bytes=1 << 20)) as engine:
        section = batches.measure(Hearth(engine), scale, runs[0])
    assert section.figures["best_factor"] > 0
