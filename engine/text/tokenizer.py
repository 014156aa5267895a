"""Loading a model's tokenizer, and a second one that reads control tokens as plain text.

Two instances, because switching `split_special_tokens` on a shared one is not thread-safe.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokenizers import AddedToken

from engine.errors import ModelLoadError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ControlToken(NamedTuple):
    """A token that only a chat template or the model may write, never a person."""

    token_id: int
    content: str
    is_special: bool  # has no text of its own in a decoded reply
    strips_left: bool  # takes the white space before it along
    strips_right: bool


class Tokenizers(NamedTuple):
    main: PreTrainedTokenizerBase
    literal: PreTrainedTokenizerBase  # gives no control token an id of its own
    control_tokens: tuple[ControlToken, ...]


def load_tokenizers(directory: str | Path, *, runs_code: bool = False) -> Tokenizers:
    """Both instances for the tokenizer in `directory`; `runs_code` lets its own code run.

    Raises:
        ModelLoadError: there is no tokenizer that can be read.
    """
    from transformers import AutoTokenizer  # brings torch along: not before it is needed

    try:
        main, literal = (
            AutoTokenizer.from_pretrained(
                directory, local_files_only=True, trust_remote_code=runs_code, **options
            )
            for options in ({}, {"split_special_tokens": True})
        )
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"The tokenizer in {directory} cannot be read: {error}") from error
    control_tokens = find_control_tokens(main)
    # special in this instance, so that it splits the others too
    literal.backend_tokenizer.add_special_tokens(
        [AddedToken(token.content, special=True) for token in control_tokens]
    )
    return Tokenizers(main, literal, control_tokens)


def find_control_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[ControlToken, ...]:
    """Special tokens, and those added tokens that mark something in the chat template.

    Other added tokens are words like any other: rows of spaces, HTML tags.
    """
    template = template_source(tokenizer)
    return tuple(
        ControlToken(token_id, token.content, token.special, token.lstrip, token.rstrip)
        for token_id, token in tokenizer.added_tokens_decoder.items()
        if token.special or _is_marker(token, template)
    )


def tokenizer_identity(tokenizers: Tokenizers) -> bytes:
    """A digest of all that decides which ids a text gets: equal ids mean the same under it."""
    digest = hashlib.sha256(tokenizers.main.backend_tokenizer.to_str().encode())
    digest.update(json.dumps([token.content for token in tokenizers.control_tokens]).encode())
    return digest.digest()


def template_source(tokenizer: PreTrainedTokenizerBase) -> str:
    """The chat template's text; empty where the model has none."""
    try:
        source: str = tokenizer.get_chat_template()
    except ValueError:
        return ""
    return source


def _is_marker(token: AddedToken, template: str) -> bool:
    """Whether the template names the token, or its partner: </think> alone makes <think> one."""
    content: str = token.content
    if content.isspace():
        return False
    is_named = content.replace("</", "<") in template.replace("</", "<")
    return is_named or (content.startswith("<|") and content.endswith("|>"))
