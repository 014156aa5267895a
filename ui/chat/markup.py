"""Makes text safe to hand to a Markdown renderer: markup of people and models is shown, not run.

Outside code and formulas, characters that would begin HTML, an entity, an image or a link to a
scheme other than the web's are written as zero-padded entities. Nobody types those, so
`assets/chat.js` can turn them back when text is copied. Takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

REASONING_START, REASONING_END = "<think>", "</think>"
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_INDENTED_LINE = re.compile(r"(?m)(^(?: {4}|\t).*\n?)")
_TAG_OR_ENTITY = re.compile(r"<(?=[A-Za-z/!?])|&(?=[#A-Za-z])")
_SPECIAL = re.compile(
    r"(?P<escaped>\\[^\[(])"
    r"|(?P<span>(?P<ticks>`+)|\$\$|\\\[|\\\()"
    r"|(?P<character><(?=[A-Za-z/!?])|&(?=[#A-Za-z])|!(?=\[)"
    r"|\[(?=[^\[\]]{0,500}\]\(\s*(?!https?://|mailto:|\#)))"
)
_FENCE_HEAD = re.compile(r"^( {0,3}(?:`+|~+))[^\n]*")
# Languages that the page's highlighter knows. It shows nothing at all of a message that names
# "cpp" (that needs "c" loaded first) or a property of every JavaScript object.
_LANGUAGES = frozenset(
    (
        *("bash", "c", "css", "go", "html", "java", "javascript", "js", "json", "latex", "markup"),
        *("php", "py", "python", "rust", "sh", "sql", "svg", "ts", "typescript", "xml", "yaml"),
    )
)
_LANGUAGE_NAMES = {"c++": "c", "cpp": "c", "cc": "c", "h": "c", "hpp": "c"}
_CLOSERS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}
_ENTITIES = {"&": "&#x00026;", "<": "&#x0003C;", "!": "&#x00021;", "[": "&#x0005B;"}
_INVISIBLE_JOINER = "\u2060"


class Reply(NamedTuple):
    reasoning: str  # empty where the model showed none
    text: str


def split_reasoning(text: str) -> Reply:
    """Separate a leading block of the model's reasoning; it may be unfinished."""
    stripped = text.lstrip()
    if not stripped.startswith(REASONING_START):
        return Reply("", text)
    reasoning, _, answer = stripped.removeprefix(REASONING_START).partition(REASONING_END)
    return Reply(reasoning.strip(), answer.lstrip("\n"))


def literal_markdown(text: str) -> str:
    """`text` for a Markdown renderer, with code and formulas left to it."""
    return "".join(
        _known_language(chunk.text) if chunk.is_code else _literal(chunk.text)
        for chunk in _chunks(text)
    )


class _Chunk(NamedTuple):
    is_code: bool
    text: str


def _chunks(text: str) -> Iterator[_Chunk]:
    """Fenced code and prose in turn. Prose is cut at blank lines: no code span crosses them."""
    fence = ""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        marks = _FENCE.match(line)
        if fence:
            lines.append(line)
            if marks and marks.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                yield _Chunk(True, "".join(lines))
                fence, lines = "", []
        elif marks:
            yield _Chunk(False, "".join(lines))
            fence, lines = marks.group(1), [line]
        else:
            lines.append(line)
            if not line.strip():
                yield _Chunk(False, "".join(lines))
                lines = []
    yield _Chunk(bool(fence), "".join(lines))


def _known_language(block: str) -> str:
    """A fenced block, its language left out where the page cannot highlight it."""
    head, _, rest = block.partition("\n")
    marks = _FENCE_HEAD.sub(r"\1", head)
    words = head[len(marks) :].lower().split()
    language = _LANGUAGE_NAMES.get(words[0], words[0]) if words else ""
    kept = language if language in _LANGUAGES else ""
    return f"{marks}{kept}\n{rest}"


def _literal(prose: str) -> str:
    return "".join(_literal_part(part) for part in _INDENTED_LINE.split(prose))


def _literal_part(part: str) -> str:
    if part.startswith(("    ", "\t")):
        # This may be an indented code block, where entities are not read: part the characters.
        return _TAG_OR_ENTITY.sub(lambda found: found.group() + _INVISIBLE_JOINER, part)
    pieces: list[str] = []
    unclosed: set[str] = set()
    position = 0
    while found := _SPECIAL.search(part, position):
        pieces.append(part[position : found.start()])
        position = found.end()
        piece = found.group()
        if found.group("character"):
            piece = _ENTITIES[piece]
        elif found.group("span") and piece not in unclosed:
            end = _end_of_span(part, found)
            if end is None:
                unclosed.add(piece)
            else:
                piece, position = _literal_span(part[found.start() : end]), end
        pieces.append(piece)
    return "".join((*pieces, part[position:]))


def _end_of_span(part: str, opener: re.Match[str]) -> int | None:
    ticks = opener.group("ticks")
    if ticks:
        closer = re.compile(rf"(?<!`){ticks}(?!`)").search(part, opener.end())
        return closer.end() if closer else None
    closing = _CLOSERS[opener.group()]
    start = part.find(closing, opener.end())
    return None if start < 0 else start + len(closing)


def _literal_span(span: str) -> str:
    """Code stays as it is. A formula may hold "<", but never what would begin a tag."""
    return span if span.startswith("`") else re.sub(r"<(?=[A-Za-z/!?])", "< ", span)
