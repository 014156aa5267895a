from __future__ import annotations

import asyncio

import pytest

from tests.factories import make_model_info
from tests.path_factories import path_of
from ui.chat.room import (
    ContextFullError,
    OnFull,
    context_size,
    cut_points,
    first_cut_within,
    max_prompt_tokens,
    max_summary_tokens,
    prompt_tokens_after_cut,
    reply_tokens,
)


def test_the_context_is_bounded_by_the_model_and_by_the_cache() -> None:
    info = make_model_info(max_model_len=4096, num_blocks=64, block_size=16)
    assert context_size(info) == 1024
    info = make_model_info(max_model_len=512, num_blocks=64, block_size=16)
    assert context_size(info) == 512


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens", "expected"),
    [
        (100, 512, 512),  # room for all that was asked for
        (3584, 512, 512),
        (3585, 512, 511),  # a shorter reply than asked for
        (3840, 512, 256),  # 1/16 of the context is the least
        (3841, 512, None),
        (4000, 96, 96),  # a short reply needs no more room than its own
        (4001, 96, None),
        (4096, 1, None),
        (9999, 512, None),
    ],
)
def test_the_room_for_a_reply(
    num_prompt_tokens: int, max_tokens: int, expected: int | None
) -> None:
    assert reply_tokens(num_prompt_tokens, max_tokens, 4096) == expected


def test_in_a_small_context_64_tokens_are_the_least() -> None:
    assert reply_tokens(192, 512, 256) == 64
    assert reply_tokens(193, 512, 256) is None
    assert max_prompt_tokens(512, 256) == 192


def test_a_cut_leaves_room_for_some_turns() -> None:
    assert prompt_tokens_after_cut(512, 4096) == 2457
    assert prompt_tokens_after_cut(512, 100) == 36  # the reply's own room comes first
    assert max_summary_tokens(4096) == 512
    assert max_summary_tokens(1000) == 125


def test_cuts_are_made_before_questions() -> None:
    assert cut_points(path_of("q", "a", "q", "a", "q")) == [2, 4]
    assert cut_points(path_of("q")) == []


@pytest.mark.parametrize("limit", [0, 9, 10, 11, 45, 99, 100, 1000])
def test_the_earliest_cut_that_fits_is_found_with_few_counts(limit: int) -> None:
    points = list(range(2, 202, 2))
    counted: list[int] = []

    async def count(point: int) -> int:
        counted.append(point)
        return 210 - point  # the last one has 10

    found = asyncio.run(first_cut_within(points, limit, count))
    assert found == next((point for point in points if 210 - point <= limit), None)
    assert len(counted) <= 8


def test_the_error_says_the_numbers_and_what_helps() -> None:
    error = ContextFullError(
        used=5000, max_tokens=4096, choices=[OnFull.DROP, OnFull.SUMMARISE], num_left_out=6
    )
    assert error.details == {
        "used": 5000,
        "max": 4096,
        "choices": ["drop", "summarise"],
        "num_left_out": 6,
    }
    assert "5,000" in str(error)
    assert "4,096" in str(error)
    assert "leave out" in str(error)
    assert "shorten" in str(ContextFullError(used=5000, max_tokens=4096))
