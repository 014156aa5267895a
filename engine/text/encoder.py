"""From rendered prompt text to ids. The template's control tokens get ids, people's do not."""

from __future__ import annotations

import re

from engine.errors import InvalidParameterError
from engine.text.literals import ControlLiterals
from engine.text.tokenizer import ControlToken, Tokenizers

# what a tokenizer takes for white space beside a token that strips it
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_LEAD = "\n"  # takes the space that some tokenizers put before all text


class PromptEncoder:
    """Encodes text whose typed control tokens were hidden by `literals`.

    Text without any is encoded as a whole, as `apply_chat_template` does.
    """

    def __init__(self, tokenizers: Tokenizers, literals: ControlLiterals) -> None:
        self._main = tokenizers.main
        self._literal = tokenizers.literal
        self._literals = literals
        self._tokens = {token.content: token for token in tokenizers.control_tokens}
        self._control_ids = {token.token_id for token in tokenizers.control_tokens}
        contents = sorted(self._tokens, key=len, reverse=True)
        self._cut = re.compile("(" + "|".join(map(re.escape, contents)) + ")")
        self._runs_are_separate = self._check_runs()

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text, from its start or from one of the template's control tokens."""
        if not self._literals.are_in(text):
            return self._encode_main(self._literals.show(text))
        pieces = self._cut.split(text)  # [run, control token, run, ..., run]
        token_ids: list[int] = []
        plain = ""
        for index, piece in enumerate(pieces):
            if not self._literals.are_in(piece):
                plain += self._literals.show(piece)
                continue
            token_ids += self._encode_main(plain)
            token_ids += self._encode_run(
                piece, self._token_at(pieces, index - 1), self._token_at(pieces, index + 1)
            )
            plain = ""
        return token_ids + self._encode_main(plain)

    def starts_with_control_token(self, text: str) -> bool:
        return self._cut.match(text) is not None

    def encode_inside(self, text: str) -> list[int]:
        """Ids of plain text that goes on after other text: no space is put before it."""
        if not text:
            return []
        lead = self._encode_literal(_LEAD)
        token_ids = self._encode_literal(_LEAD + text)
        if token_ids[: len(lead)] == lead:
            return token_ids[len(lead) :]
        return self._encode_literal(text)

    def _encode_run(
        self, run: str, before: ControlToken | None, after: ControlToken | None
    ) -> list[int]:
        text = self._literals.show(run)
        if before is not None and before.strips_right:
            text = text.lstrip(_WHITE_SPACE)
        if after is not None and after.strips_left:
            text = text.rstrip(_WHITE_SPACE)
        if before is None or self._runs_are_separate:
            return self._encode_literal(text)
        return self.encode_inside(text)

    def _token_at(self, pieces: list[str], index: int) -> ControlToken | None:
        return self._tokens[pieces[index]] if 0 <= index < len(pieces) else None

    def _encode_main(self, text: str) -> list[int]:
        return self._main.encode(text, add_special_tokens=False, verbose=False) if text else []

    def _encode_literal(self, text: str) -> list[int]:
        if not text:
            return []
        token_ids: list[int] = self._literal.encode(text, add_special_tokens=False, verbose=False)
        if not self._control_ids.isdisjoint(token_ids):
            raise InvalidParameterError(
                "A message has a control token that this model cannot read as text: remove it.",
                "messages",
            )
        return token_ids

    def _check_runs(self) -> bool:
        """Whether text after a control token gets the ids that it has on its own."""
        if not self._tokens:
            return True
        control = next(iter(self._tokens))
        return self._encode_main(control + "a") == self._encode_main(control) + self._encode_main(
            "a"
        )
