from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ModelLoadError
from engine.text.tokenizer import Tokenizers, load_tokenizers


def contents(tokenizers: Tokenizers) -> list[str]:
    return [token.content for token in tokenizers.control_tokens]


def test_special_tokens_are_control_tokens(bundled: Tokenizers) -> None:
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} < set(contents(bundled))


def test_a_marker_named_in_the_template_is_one_and_so_is_its_partner(qwen3: Tokenizers) -> None:
    assert contents(qwen3) == [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
        "</think>",
    ]  # but neither <b> nor the row of spaces, which are words like any other


def test_the_literal_instance_reads_control_tokens_as_text(tokenizers: Tokenizers) -> None:
    for token in tokenizers.control_tokens:
        assert token.token_id in tokenizers.main.encode(token.content, add_special_tokens=False)
        literal_ids = tokenizers.literal.encode(token.content, add_special_tokens=False)
        assert token.token_id not in literal_ids
        assert tokenizers.main.decode(literal_ids).strip() == token.content


def test_a_missing_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"The tokenizer in .* cannot be read"):
        load_tokenizers(tmp_path)
