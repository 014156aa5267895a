"""Decoding a growing list of ids without decoding all of it each time.

`tokenizers.DecodeStream` does not serve: it cannot give out the tail at the end, waits on a row of
real U+FFFD, and raises where a byte makes the bytes before it invalid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_REPLACEMENT = "\ufffd"
_MAX_PENDING = 16


class DecodingTokenizer(Protocol):
    """The part of a Transformers tokenizer that decoding needs."""

    @property
    def added_tokens_decoder(self) -> Any: ...

    def convert_ids_to_tokens(self, ids: int) -> Any: ...

    def decode(
        self,
        token_ids: list[int],
        skip_special_tokens: bool = ...,
        clean_up_tokenization_spaces: bool = ...,
    ) -> Any: ...


def decode_text(tokenizer: DecodingTokenizer, token_ids: Sequence[int]) -> str:
    """The text of `token_ids`: without special tokens, without clean-up of spaces."""
    text: str = tokenizer.decode(
        list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return text


class TokenDecoder:
    """What `decode_text` gives for all ids, released in whole characters.

        | released long ago | context | pending |
                              ^ only this window is decoded; it starts between two characters, and
                                its first token takes what a decoder does to a first token
    A run of byte tokens is decoded when it ends: until then a later byte may make it invalid.
    """

    def __init__(self, tokenizer: DecodingTokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        self._special_ids = {token_id for token_id, token in added.items() if token.special}
        self._context: list[int] = []
        self._pending: list[int] = []
        self._num_shown = 0  # characters of the window's text that were released
        self._num_released = 0  # characters released in all
        self.num_chars = 0  # of all text decoded so far, an unfinished last character included
        self.in_byte_run = False  # `num_chars` does not count the run yet

    def push(self, token_id: int) -> str:
        """Whole characters that are certain now."""
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None or token_id in self._special_ids:
            return ""
        self._pending.append(token_id)
        self.in_byte_run = _BYTE_TOKEN.fullmatch(token) is not None
        return "" if self.in_byte_run else self._advance(is_last=False)

    def flush(self) -> str:
        """The rest, an unfinished character as U+FFFD."""
        self.in_byte_run = False
        return self._advance(is_last=True) if self._pending else ""

    def _advance(self, is_last: bool) -> str:
        text = decode_text(self._tokenizer, self._context + self._pending)
        is_unfinished = text.endswith(_REPLACEMENT) and not is_last
        released = text[self._num_shown : len(text) - is_unfinished]
        self._num_shown += len(released)
        self._num_released += len(released)
        self.num_chars = self._num_released + is_unfinished
        if is_unfinished:
            self._shorten_window(text)
        elif released:
            self._context, self._pending = self._pending, []
            self._num_shown = len(decode_text(self._tokenizer, self._context))
        return released

    def _shorten_window(self, text: str) -> None:
        """Keep a long row of U+FFFD cheap: start the window later where that changes nothing."""
        if len(self._pending) % _MAX_PENDING != 0:
            return
        window = self._context + self._pending
        before, after = window[:-_MAX_PENDING], window[-_MAX_PENDING:]
        text_before = decode_text(self._tokenizer, before)
        text_after = decode_text(self._tokenizer, after)
        if text_after and text_before + text_after == text:
            self._context, self._pending = [], after
            self._num_shown -= len(text_before)
