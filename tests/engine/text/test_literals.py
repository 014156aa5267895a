from __future__ import annotations

import random

import pytest

from engine.text.literals import ControlLiterals
from engine.text.tokenizer import ControlToken

LITERALS = ControlLiterals(
    [
        ControlToken(1, "<|end|>", is_special=True, strips_left=False, strips_right=True),
        ControlToken(2, "<|end|>>", is_special=True, strips_left=False, strips_right=False),
        ControlToken(3, "<think>", is_special=False, strips_left=False, strips_right=False),
    ]
)


@pytest.mark.parametrize(
    ("text", "role", "hidden"),
    [
        ("no marker < > |", "user", "no marker < > |"),
        ("a<|end|>b", "user", "a\U000f0000b"),
        ("a<|end|>>b", "system", "a\U000f0001b"),  # the longest one
        ("<think>", "user", "\U000f0002"),
        ("<think><|end|>", "assistant", "<think>\U000f0000"),
        ("\U000f0000\U0010fffd", "user", "\U0010fffd\U000f0000\U0010fffd\U0010fffd"),
    ],
)
def test_control_tokens_become_one_character_each(text: str, role: str, hidden: str) -> None:
    assert LITERALS.hide(text, role) == hidden
    assert LITERALS.show(hidden) == text


def test_only_control_tokens_count_as_hidden() -> None:
    assert LITERALS.are_in(LITERALS.hide("a<|end|>", "user"))
    assert not LITERALS.are_in(LITERALS.hide("\U000f0000\U0010fffd\U000f0001", "user"))


def test_whatever_people_type_is_shown_again() -> None:
    rng = random.Random(48)
    alphabet = ["<|end|>", "<|end|>>", "<think>", "<", "|", "\U000f0000", "\U0010fffd", "\ue000"]
    for _ in range(2000):
        text = "".join(rng.choices(alphabet, k=rng.randrange(8)))
        hidden = LITERALS.hide(text, "user")
        assert LITERALS.show(hidden) == text
        assert "<|end|>" not in hidden
