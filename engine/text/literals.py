"""Keeping control tokens that people typed apart from those that the chat template writes.

Before a template is rendered, each one in a message is replaced by one private-use character, so
that templates may trim and inspect the text as usual; afterwards it is plain text again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.text.tokenizer import ControlToken

_FIRST_PLACEHOLDER = 0xF0000  # plane 15, private use
_ESCAPE = "\U0010fffd"  # stands before a private-use character that a person typed


class ControlLiterals:
    """Hides and shows the control tokens in people's text. Without state: equal in, equal out."""

    def __init__(self, control_tokens: Sequence[ControlToken]) -> None:
        contents = [token.content for token in control_tokens]
        self._contents = contents
        self._placeholders = {
            content: chr(_FIRST_PLACEHOLDER + index) for index, content in enumerate(contents)
        }
        reserved = f"[{_ESCAPE}{chr(_FIRST_PLACEHOLDER)}-{chr(_FIRST_PLACEHOLDER + len(contents))}]"
        special = [token.content for token in control_tokens if token.is_special]
        self._all = re.compile("|".join([*_longest_first(contents), reserved]))
        self._special = re.compile("|".join([*_longest_first(special), reserved]))
        self._marked = re.compile(f"{_ESCAPE}?{reserved}")

    def hide(self, text: str, role: str) -> str:
        """A message's text with placeholders.

        A reply keeps markers such as <think>, which have text: the model itself wrote them.
        """
        pattern = self._special if role == "assistant" else self._all
        return pattern.sub(self._hide_one, text)

    def show(self, text: str) -> str:
        """Undo `hide`."""
        return self._marked.sub(self._show_one, text)

    def are_in(self, text: str) -> bool:
        """Whether `text` holds a hidden control token."""
        return any(self._content(match[0]) is not None for match in self._marked.finditer(text))

    def _hide_one(self, match: re.Match[str]) -> str:
        return self._placeholders.get(match[0], _ESCAPE + match[0])

    def _show_one(self, match: re.Match[str]) -> str:
        content = self._content(match[0])
        return match[0][-1] if content is None else content

    def _content(self, mark: str) -> str | None:
        index = ord(mark) - _FIRST_PLACEHOLDER if len(mark) == 1 else -1
        return self._contents[index] if 0 <= index < len(self._contents) else None


def _longest_first(contents: Sequence[str]) -> list[str]:
    return [re.escape(content) for content in sorted(contents, key=len, reverse=True)]
