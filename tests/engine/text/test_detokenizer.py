from __future__ import annotations

import random

import pytest

from engine.text.detokenizer import DetokenizedDelta, IncrementalDetokenizer
from engine.text.stop_strings import StopStringMatcher
from engine.text.token_decoder import decode_text
from engine.text.tokenizer import Tokenizers


def encode(tokenizers: Tokenizers, text: str) -> list[int]:
    token_ids: list[int] = tokenizers.main.encode(text, add_special_tokens=False)
    return token_ids


def ids_of(tokenizers: Tokenizers, *tokens: str) -> list[int]:
    token_ids: list[int] = tokenizers.main.convert_tokens_to_ids(list(tokens))
    assert None not in token_ids
    return token_ids


def test_a_stop_string_over_several_tokens_ends_the_text(bundled: Tokenizers) -> None:
    token_ids = ids_of(bundled, "three", "Ġfour", "Ġfive", "Ġsix")
    detokenizer = IncrementalDetokenizer(bundled.main, stop=["four five"])
    assert detokenizer.push(token_ids[:1]) == DetokenizedDelta("three", None)
    assert detokenizer.push(token_ids[1:2]) == DetokenizedDelta(" ", None)
    assert detokenizer.push(token_ids[2:]) == DetokenizedDelta("", "four five")
    assert detokenizer.finish() == ""
    assert detokenizer.num_accepted_tokens == 1  # the space is in the token " four"


@pytest.mark.parametrize(
    ("stop", "text", "num_accepted"),
    [
        ("our fi", "three f", 1),
        ("four", "three ", 1),
        (" four", "three", 1),
        ("five", "three four ", 2),
        ("three", "", 0),
        ("six", "three four five ", 3),
    ],
)
def test_br_21_a_stop_string_cuts_inside_a_token(
    bundled: Tokenizers, stop: str, text: str, num_accepted: int
) -> None:
    detokenizer = IncrementalDetokenizer(bundled.main, stop=[stop])
    delta = detokenizer.push(ids_of(bundled, "three", "Ġfour", "Ġfive", "Ġsix"))
    assert delta == DetokenizedDelta(text, stop)
    assert detokenizer.num_accepted_tokens == num_accepted


def test_br_23_the_held_back_tail_comes_out_at_the_end(bundled: Tokenizers) -> None:
    token_ids = encode(bundled, "RED GREEN BLUE")
    detokenizer = IncrementalDetokenizer(bundled.main, stop=["BLUE\nQQQQ"])
    shown = detokenizer.push(token_ids).text
    assert shown == "RED GREEN "
    assert shown + detokenizer.finish() == "RED GREEN BLUE"
    assert detokenizer.num_accepted_tokens == len(token_ids)


def test_br_23_the_character_before_the_stop_in_one_token_stays(bundled: Tokenizers) -> None:
    detokenizer = IncrementalDetokenizer(bundled.main, stop=["\n"])
    assert detokenizer.push(encode(bundled, "?\n")) == DetokenizedDelta("?", "\n")


def test_an_end_token_has_no_text(bundled: Tokenizers) -> None:
    token_ids = [*encode(bundled, "Hi."), *ids_of(bundled, "<|im_end|>")]
    detokenizer = IncrementalDetokenizer(bundled.main)
    assert detokenizer.push(token_ids).text + detokenizer.finish() == "Hi."


def test_half_a_character_at_the_end_is_what_decode_makes_of_it(bundled: Tokenizers) -> None:
    token_ids = encode(bundled, "😀")[:-1]
    detokenizer = IncrementalDetokenizer(bundled.main)
    assert detokenizer.push(token_ids).text == ""
    assert detokenizer.finish() == "\ufffd" == decode_text(bundled.main, token_ids)
    assert detokenizer.num_accepted_tokens == len(token_ids)


def test_a_stop_string_completed_by_the_last_bytes_is_not_shown(phi3: Tokenizers) -> None:
    detokenizer = IncrementalDetokenizer(phi3.main, stop=["😀"])
    token_ids = encode(phi3, "fox 😀")
    assert detokenizer.push(token_ids) == DetokenizedDelta("fox ", None)
    assert detokenizer.finish() == ""
    assert detokenizer.stop_match == "😀"
    assert detokenizer.num_accepted_tokens == len(token_ids) - 4


def test_ids_after_the_end_are_dropped(bundled: Tokenizers) -> None:
    detokenizer = IncrementalDetokenizer(bundled.main)
    detokenizer.push(encode(bundled, "Hi"))
    detokenizer.finish()
    assert detokenizer.push(encode(bundled, " there")) == DetokenizedDelta("", None)
    assert detokenizer.num_accepted_tokens == 1


def test_br_21_streamed_equals_whole_for_random_ids_and_stops(tokenizers: Tokenizers) -> None:
    rng = random.Random(21)
    for _ in range(300):
        token_ids = [rng.randrange(len(tokenizers.main)) for _ in range(rng.randrange(20))]
        text = decode_text(tokenizers.main, token_ids)
        starts = [rng.randrange(len(text)) for _ in range(rng.randrange(3)) if text]
        stop = [text[start : start + rng.randint(1, 8)] for start in starts]
        detokenizer = IncrementalDetokenizer(tokenizers.main, stop=stop)
        shown = "".join(detokenizer.push([token_id]).text for token_id in token_ids)
        shown += detokenizer.finish()
        whole = StopStringMatcher(stop).push(text)
        assert detokenizer.stop_match == whole.stop_match
        assert shown == (text if whole.stop_match is None else whole.text)
        accepted = decode_text(tokenizers.main, token_ids[: detokenizer.num_accepted_tokens])
        assert shown.startswith(accepted.rstrip("\ufffd"))
