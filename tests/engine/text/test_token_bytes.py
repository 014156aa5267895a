"""Bytes of single tokens, for both kinds of vocabulary."""

from __future__ import annotations

import random

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from engine.text.token_bytes import TokenBytes
from tests.conftest import BundledModel

EMOJI = "👩‍👩‍👧‍👦 é 漢 𝒳"


def make_sentencepiece_like() -> PreTrainedTokenizerFast:
    tokens = ["<unk>", "\u2581Hello", "world", "<0xF0>", "<0x0A>", "\u2581"]
    backend = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_br_50_byte_level_tokens_give_partial_characters(bundled_model: BundledModel) -> None:
    tokenizer = bundled_model.tokenizer
    token_bytes = TokenBytes(tokenizer)
    pieces = [token_bytes(token_id) for token_id in tokenizer.encode(EMOJI)]
    assert b"".join(pieces) == EMOJI.encode()
    assert any(piece.decode(errors="replace") == "\ufffd" for piece in pieces)


def test_bytes_agree_with_decoding(bundled_model: BundledModel) -> None:
    tokenizer = bundled_model.tokenizer
    token_bytes = TokenBytes(tokenizer)
    ordinary = set(range(len(tokenizer))) - set(tokenizer.added_tokens_decoder)
    for token_id in random.Random(7).sample(sorted(ordinary), 2000):
        text = tokenizer.decode([token_id], clean_up_tokenization_spaces=False)
        assert token_bytes(token_id).decode(errors="replace") == text


def test_a_control_token_is_its_name(bundled_model: BundledModel) -> None:
    token_id = bundled_model.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert TokenBytes(bundled_model.tokenizer)(token_id) == b"<|im_end|>"


def test_sentencepiece_tokens_give_spaces_and_single_bytes() -> None:
    token_bytes = TokenBytes(make_sentencepiece_like())
    assert [token_bytes(token_id) for token_id in range(1, 6)] == [
        b" Hello",
        b"world",
        b"\xf0",
        b"\n",
        b" ",
    ]


def test_an_unknown_id_has_no_bytes(bundled_model: BundledModel) -> None:
    assert TokenBytes(bundled_model.tokenizer)(10**6) == b""
