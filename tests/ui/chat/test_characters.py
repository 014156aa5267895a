"""Text that can be stored, and titles of one line."""

from __future__ import annotations

import pytest

from ui.chat.characters import first_words, one_line, whole_characters


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("plain, é, 学习, 😀", "plain, é, 学习, 😀"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d", "\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("a\0b", "a\ufffdb"),
        ("", ""),
    ],
)
def test_halves_of_characters_are_replaced(given: str, kept: str) -> None:
    assert whole_characters(given) == kept
    kept.encode()


def test_one_line_has_single_spaces() -> None:
    assert one_line("  a\n\tb\u2028c\u3000 ") == "a b c"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("short", "short"),
        ("exactly 10", "exactly 10"),
        ("one two three", "one two…"),
        ("abcdefghijklmnop", "abcdefghi…"),
        ("学习中文学习中文学习中文", "学习中文学习中文学…"),
        ("\n\n  first\nline here", "first…"),
        ("", ""),
    ],
)
def test_first_words_are_cut_between_words(text: str, words: str) -> None:
    assert first_words(text, 10) == words


def test_a_huge_text_is_not_read_to_its_end() -> None:
    assert first_words("word " * 10_000_000, 48).startswith("word word")
