"""Text as it can be stored, searched and sent on."""

from __future__ import annotations

_REPLACEMENT = "\ufffd"


def whole_characters(text: str) -> str:
    """The text with NUL and halves of surrogate pairs replaced: neither survives UTF-8 and SQL."""
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return joined.replace("\0", _REPLACEMENT)


def one_line(text: str) -> str:
    """Every run of white space as one space, none at the ends."""
    return " ".join(whole_characters(text).split())


def first_words(text: str, max_chars: int) -> str:
    """The beginning of a text on one line, cut between words where that is possible."""
    line = one_line(text[: max_chars * 8])
    if len(line) <= max_chars:
        return line
    head = line[: max_chars - 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut >= max_chars // 2 else head).rstrip() + "…"
