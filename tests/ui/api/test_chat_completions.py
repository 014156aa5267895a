"""POST /v1/chat/completions over real sockets, on an engine whose faults a test chooses."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import openai
import pytest

from engine.batch import ScheduledBatch
from tests.engine_factories import wait_until
from tests.fake_runner import FakeRunner
from tests.tokenizer_factories import save_qwen3_tokenizer
from tests.web_factories import HI, SlowRunner, bench, data, events


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen3_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_a_stream_says_what_a_whole_completion_says(tokenizer_path: Path) -> None:
    with bench(tokenizer_path) as b:
        body = {"max_tokens": 40, "return_token_ids": True, "ignore_eos": True}
        whole = b.post(**body).json()
        with b.stream(**body, stream_options={"include_usage": True}) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = events(response)
    assert lines[-1] == "data: [DONE]"
    *chunks, usage = data(lines)
    choices = [chunk["choices"][0] for chunk in chunks]
    joined = "".join(choice["delta"]["content"] for choice in choices)
    assert joined == whole["choices"][0]["message"]["content"]
    token_ids = [token_id for choice in choices for token_id in choice.get("token_ids", ())]
    assert token_ids == whole["choices"][0]["token_ids"]
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert choices[-1]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert usage["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 40


def test_br_44_one_token_is_exactly_one(tokenizer_path: Path) -> None:
    with bench(tokenizer_path) as b:
        answer = b.post(max_completion_tokens=1, max_tokens=50, ignore_eos=True).json()
    assert answer["usage"]["completion_tokens"] == 1
    assert answer["choices"][0]["finish_reason"] == "length"


def test_br_44_too_many_tokens_are_refused_by_the_clients_name(tokenizer_path: Path) -> None:
    with bench(tokenizer_path) as b:
        for name in ("max_tokens", "max_completion_tokens"):
            error = b.post(**{name: 10**12}).json()["error"]
            assert (error["param"], error["code"]) == (name, "context_length_exceeded")
        assert b.post(max_tokens=None).status_code == 200


def test_a_prompt_that_is_too_long_names_the_messages(tokenizer_path: Path) -> None:
    with bench(tokenizer_path) as b:
        response = b.post(messages=[{"role": "user", "content": "hello " * 2000}])
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")


@pytest.mark.parametrize(
    "fields",
    [{"logit_bias": {"55434": 5}}, {"stop_token_ids": [999_999]}, {"stop_token_ids": [-1]}],
)
def test_br_29_ids_the_model_lacks_are_refused(tokenizer_path: Path, fields: Any) -> None:
    with bench(tokenizer_path) as b:
        response = b.post(**fields)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == next(iter(fields))
        assert b.post(max_tokens=2).status_code == 200


def test_a_waiting_stream_is_kept_alive_with_its_place(tokenizer_path: Path) -> None:
    runner = SlowRunner()
    with bench(tokenizer_path, runner, max_num_seqs=1, max_num_batched_tokens=64) as b:
        runner.may_go_on.clear()
        with b.stream(max_tokens=3) as first:
            wait_until(lambda: b.num_live() == 1)
            with b.stream(max_tokens=3) as second:
                lines = second.iter_lines()
                comments = [next(line for line in lines if line) for _ in range(3)]
                runner.may_go_on.set()
                assert [line for line in lines if line][-1] == "data: [DONE]"
            events(first)
    assert comments[-1] in {": queued 1", ": waiting"}
    assert all(line.startswith(": ") for line in comments)


def test_over_the_bound_clients_are_told_when_to_come_back(tokenizer_path: Path) -> None:
    runner = SlowRunner()
    with bench(tokenizer_path, runner, max_num_seqs=1, max_queued_requests=1) as b:
        runner.may_go_on.clear()
        with b.stream(max_tokens=2), b.stream(max_tokens=2):  # one in the free slot, one waiting
            wait_until(lambda: runner.num_begun > 0)
            response = b.post(max_tokens=2)
            runner.may_go_on.set()
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["type"] == "rate_limit_error"


def test_a_failed_request_is_a_500_with_the_reason(tokenizer_path: Path) -> None:
    class Broken(FakeRunner):
        def execute(self, batch: ScheduledBatch) -> Any:
            self.wrong_numbers = {s.request.request_id for s in batch.requests}
            return super().execute(batch)

    with bench(tokenizer_path, Broken(8)) as b:
        whole = b.post()
        with b.stream() as response:
            assert response.status_code == 200
            lines = events(response)
        with pytest.raises(openai.APIError, match="not finite"):
            list(b.openai.chat.completions.create(model="tiny", messages=HI, stream=True))
    error = whole.json()["error"]
    assert (whole.status_code, error["type"]) == (500, "server_error")
    assert "not finite" in error["message"]
    assert data(lines) == [{"error": error}]
    assert lines[-1] == "data: [DONE]"


def test_stopping_the_engine_ends_streams_with_an_error(tokenizer_path: Path) -> None:
    with bench(tokenizer_path, SlowRunner(0.01)) as b:
        with b.stream(ignore_eos=True) as response:
            lines = response.iter_lines()
            next(line for line in lines if line.startswith("data: "))
            b.engine.stop()
            rest = [line for line in lines if line]
        after = b.post()
    assert data(rest)[-1]["error"]["code"] == "request_aborted"
    assert (after.status_code, after.json()["error"]["code"]) == (503, "engine_dead")


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("num_tokens", [0, 64, 160])
def test_br_35_a_client_that_leaves_in_the_prompt_ends_the_work(
    tokenizer_path: Path, is_stream: bool, num_tokens: int
) -> None:
    messages = [{"role": "user", "content": "hello " * 250}]
    runner = SlowRunner(0.05)
    with bench(tokenizer_path, runner, max_num_batched_tokens=32) as b:
        b.ask_and_leave(
            lambda: b.num_live() == 1 and runner.num_tokens_computed >= num_tokens,
            messages=messages,
            stream=is_stream,
        )
        num_left_at = runner.num_tokens_computed
        b.wait_until_idle()
        assert runner.num_tokens_computed - num_left_at <= 3 * 32
        assert b.post(max_tokens=1).status_code == 200


def test_br_35_a_client_that_leaves_while_it_waits_frees_its_place(tokenizer_path: Path) -> None:
    runner = SlowRunner(0.01)
    long = {"max_tokens": 100, "ignore_eos": True}
    with bench(tokenizer_path, runner, max_num_seqs=1) as b, b.stream(**long) as first:
        wait_until(lambda: b.num_live() == 1)
        b.ask_and_leave(lambda: b.num_live() == 2)
        wait_until(lambda: b.num_live() == 1)
        assert events(first)[-1] == "data: [DONE]"
    assert len({s.request.request_id for batch in runner.batches for s in batch.requests}) == 1


def test_br_34_leaving_streams_free_their_blocks_and_spare_the_others(tokenizer_path: Path) -> None:
    with bench(tokenizer_path, SlowRunner(0.002)) as b:
        body = {"max_tokens": 60, "ignore_eos": True, "seed": 5}
        alone = b.post(**body).json()["choices"][0]["message"]["content"]
        for _ in range(5):
            with b.stream(**body) as staying, contextlib.ExitStack() as stack:
                for seed in range(6):
                    leaving = stack.enter_context(b.stream(**{**body, "seed": seed}))
                    lines = leaving.iter_lines()
                    for _ in range(3):
                        next(line for line in lines if line.startswith("data: "))
                stack.close()
                text = [c["choices"][0]["delta"]["content"] for c in data(events(staying))]
            assert "".join(text) == alone
        b.wait_until_idle()
        stats = b.engine.stats()
    assert stats is not None
    assert stats.num_blocks_in_use == 0


def test_br_34_a_reader_that_stops_reading_holds_nobody_up(tokenizer_path: Path) -> None:
    options = {"max_tokens": 900, "ignore_eos": True, "logprobs": True}
    with bench(tokenizer_path) as b, b.stream(**options) as idle:
        assert b.post(max_tokens=5).status_code == 200
        b.wait_until_idle()
        assert events(idle)[-1] == "data: [DONE]"


def test_the_user_field_is_whom_the_engine_is_fair_to(tokenizer_path: Path) -> None:
    seen: list[str | None] = []
    runner = FakeRunner(8)
    runner.fault = lambda batch: seen.extend(s.request.user for s in batch.requests)
    with bench(tokenizer_path, runner) as b:
        b.post(max_tokens=1, user="ann")
        b.post(max_tokens=1)
    assert seen == ["user:ann", "client:127.0.0.1"]


def test_a_salt_keeps_prefixes_apart(tokenizer_path: Path) -> None:
    messages = [{"role": "user", "content": "hello world " * 20}]
    with bench(tokenizer_path) as b:

        def num_cached(**fields: Any) -> int:
            usage = b.post(messages=messages, max_tokens=1, **fields).json()["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        assert num_cached() == 0
        assert num_cached(cache_salt="a") == 0
        assert num_cached(cache_salt="a") > 0
        assert num_cached(cache_salt="b") == 0
