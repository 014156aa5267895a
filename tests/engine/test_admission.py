from __future__ import annotations

from typing import Any

import pytest

from engine.admission import Admission
from engine.config import EngineConfig
from engine.errors import ContextLengthError, InvalidParameterError, QueueFullError
from tests.engine_factories import make_generation_request
from tests.factories import make_model_info


def make_admission(
    *, max_model_len: int = 100, max_pool_tokens: int = 1000, **config: Any
) -> Admission:
    info = make_model_info(max_model_len=max_model_len, vocab_size=256)
    return Admission(EngineConfig(**config), info, max_pool_tokens)


def admit(admission: Admission, request_id: str, user: str | None = None) -> None:
    admission.admit(make_generation_request(request_id, user=user), now_s=0.0)


def test_what_is_accepted_has_its_limits_resolved() -> None:
    admission = make_admission(request_timeout_s=60)
    source = make_generation_request("r", [1, 2], max_tokens=5, user="ann", cache_salt="s")
    request = admission.admit(source, now_s=10.0)
    assert (request.request_id, request.prompt_token_ids) == ("r", (1, 2))
    assert (request.user, request.cache_salt, request.max_tokens) == ("ann", "s", 5)
    assert (request.arrival_s, request.deadline_s) == (10.0, 70.0)


def test_no_max_tokens_fills_the_context() -> None:
    request = make_admission().check(make_generation_request(prompt=[1] * 30), 0.0)
    assert request.max_tokens == 70


def test_no_max_tokens_fills_the_pool_where_that_is_smaller() -> None:
    admission = make_admission(max_pool_tokens=64)
    assert admission.check(make_generation_request(prompt=[1] * 30), 0.0).max_tokens == 34


def test_the_shorter_time_limit_counts() -> None:
    admission = make_admission(request_timeout_s=60)
    assert admission.check(make_generation_request(timeout_s=5), 1.0).deadline_s == 6.0
    assert admission.check(make_generation_request(timeout_s=500), 1.0).deadline_s == 61.0


@pytest.mark.parametrize(
    ("values", "message", "field"),
    [
        ({"prompt": []}, "The prompt is empty: send a message.", "prompt_token_ids"),
        (
            {"prompt": [1, 256]},
            "The prompt has token ids outside 0 to 255: encode it with this model's tokenizer.",
            "prompt_token_ids",
        ),
        (
            {"logit_bias": {300: 1.0}},
            "logit_bias names token 300, but this model's tokens end at 255.",
            "logit_bias",
        ),
        ({"timeout_s": 0.0}, "timeout_s must be above 0.", "timeout_s"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str, field: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        make_admission().admit(make_generation_request(**values), 0.0)
    assert (str(caught.value), caught.value.field) == (message, field)


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens", "message", "field"),
    [
        (
            100,
            None,
            "The prompt has 100 tokens, but the context holds 100, the reply included: "
            "shorten it or start a new chat.",
            "prompt_token_ids",
        ),
        (
            90,
            20,
            "The prompt has 90 tokens and max_tokens is 20, together 110, but the context holds "
            "100: shorten the prompt or ask for at most 10 tokens.",
            "max_tokens",
        ),
    ],
)
def test_what_does_not_fit_the_context_is_refused_with_the_numbers(
    num_prompt_tokens: int, max_tokens: int | None, message: str, field: str
) -> None:
    request = make_generation_request(prompt=[1] * num_prompt_tokens, max_tokens=max_tokens)
    with pytest.raises(ContextLengthError) as caught:
        make_admission().admit(request, 0.0)
    assert (str(caught.value), caught.value.field) == (message, field)


def test_what_can_never_fit_the_pool_is_refused() -> None:
    admission = make_admission(max_pool_tokens=64)
    with pytest.raises(ContextLengthError, match="but the server's KV cache holds 64, the reply"):
        admission.admit(make_generation_request(prompt=[1] * 64), 0.0)


def test_a_request_that_just_fits_is_accepted() -> None:
    request = make_generation_request(prompt=[1] * 90, max_tokens=10)
    assert make_admission().admit(request, 0.0).max_tokens == 10


def busy_admission(**settings: int) -> Admission:
    """One slot, and a request runs in it."""
    admission = make_admission(max_num_seqs=1, **settings)
    admit(admission, "running")
    admission.started("running", 0.0)
    return admission


def test_the_queue_has_a_bound() -> None:
    admission = busy_admission(max_queued_requests=2)
    admit(admission, "a")
    admit(admission, "b")
    with pytest.raises(QueueFullError, match="2 requests are waiting, which is the most") as caught:
        admit(admission, "c")
    assert caught.value.retry_after_s == 1
    assert admission.num_refused == 1


def test_each_known_user_has_a_bound() -> None:
    admission = busy_admission(max_queued_requests_per_user=1)
    admit(admission, "a", user="ann")
    with pytest.raises(QueueFullError, match="1 of your requests are waiting"):
        admit(admission, "b", user="ann")
    admit(admission, "c", user="bob")
    admit(admission, "d")
    admit(admission, "e")  # nobody known: only the bound for all


def test_who_starts_in_the_next_step_is_not_waiting() -> None:
    admission = make_admission(max_num_seqs=3, max_queued_requests_per_user=1)
    for name in "abcd":
        admit(admission, name, user="ann")
    with pytest.raises(QueueFullError, match="4 of your requests are waiting"):
        admit(admission, "e", user="ann")


def test_a_place_is_free_once_a_request_starts_or_ends() -> None:
    admission = make_admission(max_num_seqs=1, max_queued_requests=1)
    admit(admission, "a")
    admission.started("a", 1.0)
    admit(admission, "b")
    admission.ended("b")
    admit(admission, "c")


def test_an_id_may_not_be_used_twice_at_a_time() -> None:
    admission = make_admission()
    admit(admission, "a")
    admission.started("a", 1.0)
    with pytest.raises(InvalidParameterError, match="'a' is running already") as caught:
        admit(admission, "a")
    assert caught.value.field == "request_id"
    admission.ended("a")
    admit(admission, "a")


def test_retry_after_follows_the_recent_rate_of_starts() -> None:
    admission = make_admission(max_num_seqs=4, max_queued_requests=8)
    for index in range(4):
        admit(admission, f"s{index}")
        admission.started(f"s{index}", 0.0)
    for index in range(8):
        admit(admission, f"q{index}")
    for index in range(3):
        admission.ended(f"s{index}")
        admission.started(f"q{index}", 3.5 * (index + 1))
        admit(admission, f"r{index}")
    with pytest.raises(QueueFullError, match=r"try again in 4 s\.") as caught:
        admit(admission, "late")
    assert caught.value.retry_after_s == 4


def test_the_expected_wait_follows_place_and_rate() -> None:
    admission = busy_admission(max_queued_requests=8)
    for name in "abc":
        admit(admission, name)
    assert admission.expected_wait_s(1, now_s=1.0) is None  # nobody has started from the queue
    admission.ended("running")
    admission.started("a", 4.0)
    assert admission.expected_wait_s(1, now_s=5.0) == 4.0
    assert admission.expected_wait_s(2, now_s=5.0) == 8.0
    assert admission.expected_wait_s(1, now_s=14.0) == 7.0  # (4 + 10) / 2: the next is overdue


def test_starts_without_a_wait_say_nothing_of_the_queue() -> None:
    admission = make_admission(max_num_seqs=4)
    for index in range(20):
        admit(admission, f"s{index}")
        admission.started(f"s{index}", 0.01)
        admission.ended(f"s{index}")
    assert admission.expected_wait_s(1, now_s=1.0) is None


def test_who_waits_for_memory_waits_too() -> None:
    admission = make_admission(max_num_seqs=4)
    admit(admission, "a")
    admission.started("a", 5.0)  # there was a slot, but no room for it
    assert admission.expected_wait_s(2, now_s=6.0) == 10.0
