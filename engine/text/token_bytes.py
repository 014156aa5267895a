"""The exact bytes of one token, also where they are only a part of a character."""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE_SPACE = "\u2581"


class TokenNamingTokenizer(Protocol):
    """The part of a fast Transformers tokenizer that naming tokens needs."""

    @property
    def added_tokens_decoder(self) -> Any: ...

    @property
    def backend_tokenizer(self) -> Any: ...

    def convert_ids_to_tokens(self, ids: int) -> Any: ...


class TokenBytes:
    """Token id -> bytes, for byte-level vocabularies (GPT-2's alphabet) and SentencePiece ones."""

    def __init__(self, tokenizer: TokenNamingTokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = {id_: str(token) for id_, token in tokenizer.added_tokens_decoder.items()}
        self._byte_of = _byte_alphabet() if _is_byte_level(tokenizer) else None

    def __call__(self, token_id: int) -> bytes:
        """Empty for an id the tokenizer does not know."""
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:
            return b""
        if self._byte_of is not None:
            return b"".join(self._bytes_of_character(character) for character in token)
        byte = _BYTE_TOKEN.fullmatch(token)
        if byte:
            return bytes([int(byte.group(1), 16)])
        return str(token).replace(_SENTENCEPIECE_SPACE, " ").encode()

    def _bytes_of_character(self, character: str) -> bytes:
        assert self._byte_of is not None
        byte = self._byte_of.get(character)
        return character.encode() if byte is None else bytes([byte])


def _is_byte_level(tokenizer: TokenNamingTokenizer) -> bool:
    decoder = tokenizer.backend_tokenizer.decoder
    if decoder is None:
        return False
    description = json.loads(decoder.__getstate__())
    steps = description.get("decoders", [description])
    return any(step.get("type") == "ByteLevel" for step in steps)


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte: printable Latin-1 stands for itself, the rest for U+0100 onwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }
