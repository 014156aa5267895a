"""Finds conversations by words in their titles and messages.

Words of three characters and more are looked up in the trigram index; shorter ones, two characters
are many a Chinese word, are compared with each text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, select, text

from ui.chat.characters import one_line
from ui.chat.conversation import LimitError, SearchHit
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.tables import MESSAGES, SEARCH_INDEX

_INDEXED_CHARS = 3  # the shortest word that the index knows
_MAX_WORDS = 20
_MAX_HITS_OF_ONE = 3  # messages of one conversation
_CHARS_BEFORE, _CHARS_AFTER = 40, 100  # of an excerpt, around its hit

_WORD = re.compile(r'"([^"]+)"(?=\s|$)|(\S+)')  # words in quotes stand together

_OF_PERSON = "c.person = :person AND c.deleted_s IS NULL"


def search(
    connection: Connection,
    person: str,
    words: str,
    limit: int,
    limits: ConversationLimits,
) -> tuple[SearchHit, ...]:
    """All words must occur in the title, or in one message; "words in quotes" side by side.

    Raises LimitError.
    """
    line = one_line(words).replace("\ufffd", " ")
    wanted = list(dict.fromkeys((quoted or word).strip() for quoted, word in _WORD.findall(line)))
    wanted = [word for word in wanted if word]
    if len(line) > limits.max_search_chars or len(wanted) > _MAX_WORDS:
        raise LimitError(
            f"Search for at most {_MAX_WORDS} words with {limits.max_search_chars} characters."
        )
    if not wanted:
        return ()
    hits = [
        _hit(row, None, row["title"], wanted) for row in _titles(connection, person, wanted, limit)
    ]
    found = _spread(_messages(connection, person, wanted, limit), limit - len(hits))
    texts = _texts(connection, [row["key"] for row in found])
    hits += [_hit(row, row["message_id"], texts[row["key"]], wanted) for row in found]
    return tuple(hits)


class _Words(NamedTuple):
    """A condition, and what its parameters stand for."""

    condition: str
    values: dict[str, Any]


def _containing(column: str, words: Sequence[str]) -> _Words:
    names = [f"word_{index}" for index in range(len(words))]
    condition = " AND ".join(f"contains_word({column}, :{name})" for name in names)
    folded = (word.casefold() for word in words)
    return _Words(condition, dict(zip(names, folded, strict=True)))


def _titles(
    connection: Connection, person: str, words: Sequence[str], limit: int
) -> Sequence[RowMapping]:
    wanted = _containing("c.title", words)
    statement = text(
        f"SELECT c.conversation_id, c.title FROM conversations AS c "
        f"WHERE {_OF_PERSON} AND {wanted.condition} ORDER BY c.updated_s DESC LIMIT :limit"
    )
    values = {"person": person, "limit": limit, **wanted.values}
    return connection.execute(statement, values).mappings().all()


def _messages(
    connection: Connection, person: str, words: Sequence[str], limit: int
) -> Iterable[RowMapping]:
    """More than asked for, since one conversation shall not fill the list."""
    long = [word for word in words if len(word) >= _INDEXED_CHARS]
    short = _containing("m.text", [word for word in words if len(word) < _INDEXED_CHARS])
    conditions = [_OF_PERSON, "m.deleted_s IS NULL", "m.state <> 'writing'"]
    # A scan reads the person's own texts alone; the index finds those of everybody.
    source = "conversations AS c CROSS JOIN messages AS m ON m.conversation_key = c.key"
    values: dict[str, Any] = {"person": person, "limit": limit * 20, **short.values}
    if long:
        source = (
            f"{SEARCH_INDEX} AS s CROSS JOIN messages AS m ON m.key = s.rowid "
            "CROSS JOIN conversations AS c ON c.key = m.conversation_key"
        )
        conditions.append(f"{SEARCH_INDEX} MATCH :match")
        values["match"] = " AND ".join(_literal(word) for word in long)
    if short.condition:
        conditions.append(short.condition)
    statement = text(
        f"SELECT m.key, m.message_id, c.conversation_id, c.title FROM {source} "
        f"WHERE {' AND '.join(conditions)} ORDER BY m.created_s DESC, m.key DESC LIMIT :limit"
    )
    return connection.execute(statement, values).mappings()


def _literal(word: str) -> str:
    """A phrase for the index, in which no operator means anything."""
    return '"' + word.replace('"', '""') + '"'


def _spread(rows: Iterable[RowMapping], limit: int) -> list[RowMapping]:
    """The first of them, few of each conversation."""
    chosen: list[RowMapping] = []
    num_of: dict[str, int] = {}
    for row in rows:
        if len(chosen) >= limit:
            break
        num_of[row["conversation_id"]] = num_of.get(row["conversation_id"], 0) + 1
        if num_of[row["conversation_id"]] <= _MAX_HITS_OF_ONE:
            chosen.append(row)
    return chosen


def _texts(connection: Connection, keys: Sequence[int]) -> dict[int, str]:
    query = select(MESSAGES.c.key, MESSAGES.c.text).where(MESSAGES.c.key.in_(keys))
    return {row.key: row.text for row in connection.execute(query)}


def _hit(row: RowMapping, message_id: str | None, searched: str, words: Sequence[str]) -> SearchHit:
    excerpt, start, end = excerpt_of(searched, words)
    return SearchHit(row["conversation_id"], row["title"], message_id, excerpt, start, end)


def excerpt_of(searched: str, words: Sequence[str]) -> tuple[str, int, int]:
    """A line around the first word's first place, and where the word is, in UTF-16 units."""
    place = re.search(re.escape(words[0]), searched, re.IGNORECASE)
    start, end = place.span() if place else (0, 0)
    first = max(0, start - _CHARS_BEFORE)
    last = min(len(searched), end + _CHARS_AFTER)
    before = ("…" if first else "") + _spaced(searched[first:start])
    hit = _spaced(searched[start:end])
    after = _spaced(searched[end:last]) + ("…" if last < len(searched) else "")
    hit_start = _utf16_units(before)
    return before + hit + after, hit_start, hit_start + _utf16_units(hit)


def _spaced(part: str) -> str:
    """On one line; each character keeps its place."""
    return re.sub(r"\s", " ", part)


def _utf16_units(part: str) -> int:
    return len(part.encode("utf-16-le")) // 2
