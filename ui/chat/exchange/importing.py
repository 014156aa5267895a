"""Files of conversations that people bring: Hearth's own, ChatGPT's, Markdown, and zips of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, NamedTuple, NoReturn

from ui.chat.conversation import LimitError
from ui.chat.exchange import chatgpt_format, json_format
from ui.chat.exchange.fields import BrokenEntryError
from ui.chat.exchange.markdown_format import conversation_from_markdown
from ui.chat.exchange.soundness import sound
from ui.chat.exchange.unpacking import files_of_zip, is_zip
from ui.chat.storage.store import ConversationStore
from ui.chat.storage.whole import WholeConversation

_BATCH = 50  # conversations of a transaction
_MAX_PROBLEMS = 50
_MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class ImportLimits:
    max_bytes: int = 64 * 1024**2  # of a file
    max_unpacked_bytes: int = 256 * 1024**2  # of all files of a zip
    max_files: int = 10_000  # in a zip


class ImportResult(NamedTuple):
    num_imported: int
    num_known: int  # were there already
    problems: tuple[str, ...]  # a sentence for each thing that was left out


class UnknownFormatError(BrokenEntryError):
    """A file of some other kind."""


class _Entry(NamedTuple):
    """One conversation of a file, still unread."""

    name: str  # for the person
    read: Callable[[], WholeConversation]


def import_file(
    person: str,
    file: bytes | BinaryIO,
    store: ConversationStore,
    limits: ImportLimits | None = None,
) -> ImportResult:
    """Add what is in the file; what is broken is told of, and the rest is added all the same.

    Importing a file again adds nothing. Each conversation is added whole or not at all.
    """
    limits = limits or ImportLimits()
    content = file if isinstance(file, bytes) else file.read(limits.max_bytes + 1)
    importing = _Importing(person, store)
    if len(content) > limits.max_bytes:
        importing.report(f"The file is larger than {limits.max_bytes // 1024**2} MB: split it.")
        return importing.result()
    importing.add_all(_entries_of_file("The file", content, limits, importing.report))
    return importing.result()


@dataclass(slots=True)
class _Importing:
    """What has been added so far."""

    person: str
    store: ConversationStore
    num_imported: int = 0
    num_known: int = 0
    problems: list[str] = field(default_factory=list)
    num_problems: int = 0

    def report(self, problem: str) -> None:
        self.num_problems += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    def result(self) -> ImportResult:
        num_more = self.num_problems - len(self.problems)
        more = (f"And {num_more} more like these.",) if num_more else ()
        return ImportResult(self.num_imported, self.num_known, (*self.problems, *more))

    def add_all(self, entries: Iterable[_Entry]) -> None:
        batch: list[WholeConversation] = []
        try:
            for entry in entries:
                try:
                    now_s = self.store.now_s()
                    batch.append(sound(entry.read(), self.store.limits, now_s))
                except (BrokenEntryError, LimitError) as error:
                    self.report(f"{entry.name} was left out: {error}")
                if len(batch) == _BATCH:
                    self._add(batch)
                    batch = []
            self._add(batch)
        except LimitError as error:
            self.report(f"Not everything was imported: {error}")

    def _add(self, batch: list[WholeConversation]) -> None:
        """Raises LimitError: there is no room for all of it; nothing of it was added."""
        added = self.store.add_whole(self.person, batch)
        self.num_imported += added.num_new
        self.num_known += added.num_known


def _entries_of_file(
    name: str, content: bytes, limits: ImportLimits, report: Callable[[str], None]
) -> Iterator[_Entry]:
    try:
        if is_zip(content):
            files = files_of_zip(content, limits.max_unpacked_bytes, limits.max_files)
            yield from _entries_of_files(name, files, report)
        else:
            yield from _entries_of_text(name, content)
    except BrokenEntryError as error:
        report(f"{name} cannot be read: {error}")


def _entries_of_files(
    name: str, files: Iterable[tuple[str, bytes]], report: Callable[[str], None]
) -> Iterator[_Entry]:
    """What is in a zip; exports of other programs hold files of another kind beside the one."""
    is_empty = True
    for inner_name, content in files:
        try:
            for entry in _entries_of_text(_shown(inner_name), content):
                is_empty = False
                yield entry
        except UnknownFormatError:
            continue
        except BrokenEntryError as error:
            is_empty = False
            report(f"{_shown(inner_name)} cannot be read: {error}")
    if is_empty:
        report(f"{name} holds no conversations.")


def _entries_of_text(name: str, content: bytes) -> Iterator[_Entry]:
    """Raises BrokenEntryError."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BrokenEntryError("it is neither JSON nor Markdown in UTF-8.") from None
    if text.lstrip().startswith(("{", "[")):
        yield from _entries_of_json(_parsed(text))
    else:
        title = name.removesuffix(".md")
        yield _Entry(name, partial(conversation_from_markdown, text, title))


def _entries_of_json(document: object) -> Iterator[_Entry]:
    """Raises BrokenEntryError."""
    if isinstance(document, Mapping) and json_format.is_own_json(document):
        for number, entry in enumerate(json_format.entries_of(document), 1):
            yield _Entry(_name_of(number, entry), partial(json_format.conversation_from, entry))
        return
    entries = document if isinstance(document, list) else [document]
    if not any(map(chatgpt_format.is_chatgpt_entry, entries)):
        raise UnknownFormatError("it is JSON, but neither an export of Hearth nor of ChatGPT.")
    for number, entry in enumerate(entries, 1):
        yield _Entry(_name_of(number, entry), partial(chatgpt_format.conversation_from, entry))


def _parsed(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise BrokenEntryError("it is nested too deeply.") from None
    except ValueError as error:
        raise BrokenEntryError(f"it is not valid JSON ({str(error)[:100]}).") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _name_of(number: int, entry: object) -> str:
    title = entry.get("title") if isinstance(entry, Mapping) else None
    shown = f" ({_shown(title)})" if isinstance(title, str) and title.strip() else ""
    return f"Conversation {number}{shown}"


def _shown(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= _MAX_SHOWN_CHARS else line[: _MAX_SHOWN_CHARS - 1] + "…"
