from __future__ import annotations

import random
import time

import pytest

from engine.text.token_decoder import TokenDecoder, decode_text
from engine.text.tokenizer import Tokenizers

EMOJI = "👩‍👩‍👧‍👦 🏳️‍🌈 🇯🇵 é e\u0301 똻 漢 𝒳"


def decode_in_pieces(tokenizers: Tokenizers, token_ids: list[int]) -> list[str]:
    decoder = TokenDecoder(tokenizers.main)
    return [*(decoder.push(token_id) for token_id in token_ids), decoder.flush()]


def encode(tokenizers: Tokenizers, text: str) -> list[int]:
    token_ids: list[int] = tokenizers.main.encode(text, add_special_tokens=False)
    return token_ids


def random_ids(tokenizers: Tokenizers, partial: list[int], rng: random.Random) -> list[int]:
    """Half of them parts of characters, some special, some beyond the vocabulary."""
    size = len(tokenizers.main)
    return [
        rng.choice(partial) if rng.random() < 0.5 else rng.randrange(size + 3)
        for _ in range(rng.randrange(30))
    ]


@pytest.mark.parametrize(
    "text",
    [
        EMOJI,
        "Repeat exactly:  This is a  test,\n    indented line",
        " starts with a space",
        "\nstarts with a line",
        "    return 1",
        "for 'manual' use, do n't , it 's . x ! y ?",
    ],
)
def test_br_15_br_20_pieces_join_to_the_decode_of_all_ids(
    tokenizers: Tokenizers, text: str
) -> None:
    token_ids = encode(tokenizers, text)
    assert "".join(decode_in_pieces(tokenizers, token_ids)) == decode_text(
        tokenizers.main, token_ids
    )


def test_br_18_emoji_come_out_whole(tokenizers: Tokenizers) -> None:
    pieces = decode_in_pieces(tokenizers, encode(tokenizers, EMOJI))
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == EMOJI


def test_br_18_a_real_replacement_character_comes_out_with_the_next_one(
    tokenizers: Tokenizers,
) -> None:
    token_ids = encode(tokenizers, "a\ufffdb\ufffd")
    pieces = decode_in_pieces(tokenizers, token_ids)
    assert "".join(pieces[:-1]).startswith("a\ufffdb")
    assert "".join(pieces) == "a\ufffdb\ufffd"


def test_pieces_join_for_random_ids(tokenizers: Tokenizers) -> None:
    rng = random.Random(1)
    partial = [i for i in range(431) if "\ufffd" in tokenizers.main.decode([i])]
    for _ in range(300):
        token_ids = random_ids(tokenizers, partial, rng)
        pieces = decode_in_pieces(tokenizers, token_ids)
        assert "".join(pieces) == decode_text(tokenizers.main, token_ids), token_ids


def test_bytes_that_turn_out_invalid_take_the_ones_before_along(phi3: Tokenizers) -> None:
    token_ids = phi3.main.convert_tokens_to_ids(["<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0xFF>"])
    assert decode_in_pieces(phi3, token_ids) == ["", "", "", "", "", "\ufffd" * 5]


def test_special_tokens_have_no_text(qwen3: Tokenizers) -> None:
    token_ids = qwen3.main.convert_tokens_to_ids(["<|im_start|>", "<think>", "a", "<|im_end|>"])
    assert decode_in_pieces(qwen3, token_ids) == ["", "<think>", "a", "", ""]


def test_a_long_reply_costs_no_more_for_each_token(bundled: Tokenizers) -> None:
    for token_ids in (encode(bundled, "hello 漢 ") * 800, encode(bundled, "\ufffd") * 4000):
        started_s = time.perf_counter()
        pieces = decode_in_pieces(bundled, token_ids)
        assert time.perf_counter() - started_s < 5  # decoding all of it each time takes 30
        assert "".join(pieces) == decode_text(bundled.main, token_ids)
