"""The benchmark of the page, with few streams on an engine without a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.page import BenchPlan, PageBench, figures, print_rounds, served_page
from bench.page_client import Answer, ClientResult
from tests.tokenizer_factories import save_qwen3_tokenizer
from tests.web_factories import SlowRunner, make_chat_engine

PLAN = BenchPlan(streams=6, tokens=40, rounds=2, num_presses=2)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBench]:
    tokenizer = save_qwen3_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    engine = make_chat_engine(tokenizer, SlowRunner(0.03), max_num_seqs=PLAN.streams)
    with served_page(engine, tmp_path_factory.mktemp("data")) as url:
        bench = PageBench(engine, url, PLAN)
        bench.run()
        yield bench


def test_every_stream_is_answered_and_counted_in_both_kinds(bench: PageBench) -> None:
    result = figures(bench, PLAN)
    assert (result["streams"], result["answered"]) == (6, 6)
    for direct, page in zip(bench.direct, bench.page, strict=True):
        num_tokens = [answer.num_output_tokens for answer in page.seen.answers]
        assert sum(num_tokens) == direct.num_output_tokens  # the same prompts, greedy
        assert max(num_tokens) == PLAN.tokens
        assert all(answer.num_events >= 3 for answer in page.seen.answers)
        assert all(answer.num_chars > 0 for answer in page.seen.answers)
    assert 0 < result["throughput_share"] < 1.5
    assert result["web_max_rss_bytes"] > 1 << 20


def test_buttons_are_pressed_while_all_stream(bench: PageBench) -> None:
    result = figures(bench, PLAN)
    assert bench.buttons is not None
    states = [answer.state for answer in bench.buttons.answers]
    assert states[:2] == ["stopped", "stopped"]
    assert (result["stops"], len(bench.buttons.second_tabs_s)) == (2, 2)
    for name in ("stop_p95_s", "second_tab_p95_s", "list_p95_s"):
        assert 0 < result[name] < 1


def test_no_round_finds_the_prompts_of_another(bench: PageBench) -> None:
    rounds = [bench.prompts(number) for number in range(-1, 3)]
    assert len({prompt for prompts in rounds for prompt in prompts}) == 2 + 3 * 6
    assert bench.prompts(1) == rounds[2]


def test_the_table_has_a_row_for_each_round(
    bench: PageBench, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rounds(bench)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["1", "direct"],
        ["1", "page"],
        ["2", "direct"],
        ["2", "page"],
    ]


def test_results_survive_the_way_between_the_processes() -> None:
    answer = Answer(state="done", num_output_tokens=4, num_events=2, num_chars=9, longest_gap_s=0.5)
    fields = {"wall_s": 1.5, "answers": [vars(answer)], "stops_s": [0.1]}
    assert ClientResult.of_json(fields) == ClientResult(wall_s=1.5, answers=[answer], stops_s=[0.1])
