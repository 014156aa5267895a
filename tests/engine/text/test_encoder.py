from __future__ import annotations

import pytest

from engine.errors import InvalidParameterError
from engine.text.encoder import PromptEncoder
from engine.text.literals import ControlLiterals
from engine.text.tokenizer import ControlToken, Tokenizers


def make_encoder(tokenizers: Tokenizers) -> PromptEncoder:
    return PromptEncoder(tokenizers, ControlLiterals(tokenizers.control_tokens))


def hide(tokenizers: Tokenizers, text: str) -> str:
    return ControlLiterals(tokenizers.control_tokens).hide(text, "user")


def encode(tokenizers: Tokenizers, text: str) -> list[int]:
    token_ids: list[int] = tokenizers.main.encode(text, add_special_tokens=False)
    return token_ids


def test_text_without_hidden_tokens_is_encoded_as_a_whole(tokenizers: Tokenizers) -> None:
    text = "<|im_start|>user\n the  quick 漢\U000f0001 fox[/INST] <|end|>\n <s>"
    shown = ControlLiterals(tokenizers.control_tokens).hide("\U000f0001", "user")
    marked = text.replace("\U000f0001", shown)
    assert make_encoder(tokenizers).encode(marked) == encode(tokenizers, text)


def test_the_template_s_own_tokens_keep_their_ids_beside_hidden_ones(
    tokenizers: Tokenizers,
) -> None:
    control = tokenizers.control_tokens[0]
    text = f"{control.content}the {hide(tokenizers, control.content)} fox{control.content}the fox"
    token_ids = make_encoder(tokenizers).encode(text)
    assert [token_id for token_id in token_ids if token_id == control.token_id] == [
        control.token_id
    ] * 2
    end = encode(tokenizers, f"{control.content}the fox")
    assert token_ids[-len(end) :] == end


def test_a_run_with_a_hidden_token_begins_like_any_other(tokenizers: Tokenizers) -> None:
    control = tokenizers.control_tokens[-1].content
    plain = encode(tokenizers, f"{control}\n the quick fox")
    marked = make_encoder(tokenizers).encode(
        f"{control}\n the quick fox {hide(tokenizers, control)}"
    )
    assert marked[: len(plain)] == plain


def test_text_goes_on_without_a_new_space(phi3: Tokenizers) -> None:
    tokens = phi3.main.convert_ids_to_tokens(make_encoder(phi3).encode_inside("hello"))
    assert "".join(tokens) == "hello"
    tokens = phi3.main.convert_ids_to_tokens(make_encoder(phi3).encode_inside(" hello"))
    assert "".join(tokens) == "▁hello"


def test_a_control_token_that_cannot_be_text_is_refused(bundled: Tokenizers) -> None:
    the_id = bundled.main.convert_tokens_to_ids("the")
    word = ControlToken(the_id, "the", is_special=True, strips_left=False, strips_right=False)
    tokenizers = bundled._replace(control_tokens=(*bundled.control_tokens, word))
    with pytest.raises(InvalidParameterError, match="cannot read as text"):
        make_encoder(tokenizers).encode(hide(tokenizers, "the"))
