from __future__ import annotations

import random

import pytest

from engine.text.stop_strings import StopScan, StopStringMatcher


def feed(stop: list[str], pieces: list[str]) -> tuple[str, str | None]:
    """All text that is released, and the match."""
    matcher = StopStringMatcher(stop)
    released = ""
    for piece in pieces:
        scan = matcher.push(piece)
        released += scan.text
        if scan.stop_match is not None:
            return released, scan.stop_match
    return released + matcher.finish(), None


def test_text_passes_where_there_is_no_stop_string() -> None:
    assert StopStringMatcher([]).push("anything") == StopScan("anything", None)


def test_br_21_only_a_possible_partial_match_is_held_back() -> None:
    matcher = StopStringMatcher(["four five"])
    assert matcher.push("three f") == StopScan("three ", None)
    assert matcher.push("our") == StopScan("", None)
    assert matcher.push("teen") == StopScan("fourteen", None)
    assert matcher.push(" four f") == StopScan(" ", None)
    assert matcher.push("ive six") == StopScan("", "four five")


@pytest.mark.parametrize(
    ("stop", "pieces", "expected"),
    [
        (["our fi"], ["three four", " five"], ("three f", "our fi")),
        (["six", "five", "four", "seven"], ["three four five six"], ("three ", "four")),
        (["c", "bcd"], ["abcd"], ("ab", "c")),  # completed first
        (["c", "bc"], ["abcd"], ("a", "bc")),  # completed together: the longer one
        (["aab"], ["aaa", "ab"], ("aa", "aab")),
        (["\n"], ["?\n"], ("?", "\n")),
    ],
)
def test_br_21_the_text_ends_before_the_match_completed_first(
    stop: list[str], pieces: list[str], expected: tuple[str, str]
) -> None:
    assert feed(stop, pieces) == expected


def test_br_23_a_tail_that_looked_like_a_stop_string_comes_out_at_the_end() -> None:
    matcher = StopStringMatcher(["BLUE\nQQQQ"])
    assert matcher.push("RED GREEN BLUE") == StopScan("RED GREEN ", None)
    assert matcher.finish() == "BLUE"
    assert matcher.finish() == ""


def test_br_21_the_result_does_not_depend_on_the_pieces() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        text = "".join(rng.choices("ab ", k=rng.randrange(30)))
        stop = ["".join(rng.choices("ab ", k=rng.randint(1, 5))) for _ in range(rng.randint(1, 4))]
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randrange(6)))
        pieces = [
            text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
        ]
        assert feed(stop, pieces) == feed(stop, [text]) == feed(stop, list(text))
