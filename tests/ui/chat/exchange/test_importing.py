"""Files of every kind, good and bad."""

from __future__ import annotations

import io
import json
import random
import time
import zipfile

import pytest

from tests.storage_factories import Library
from tests.ui.chat.exchange.test_json_format import document
from tests.ui.chat.exchange.test_markdown_format import of_texts
from ui.chat.conversation import ContextCut, Role
from ui.chat.exchange.export import (
    all_conversations,
    export_json,
    file_name,
    markdown_zip,
)
from ui.chat.exchange.importing import ImportLimits, ImportResult, import_file
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.store import ConversationStore
from ui.chat.storage.whole import WholeConversation, WholeMessage, with_ids_of

MAX_IMPORT_S = 5.0
_MACHINE_FACTOR = 6  # test machines are shared and slow


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_zip_of_markdown_comes_back(shelf: Library) -> None:
    shelf.exchange("ann", "one", "1")
    shelf.exchange("ann", 'two/../"x"', "2")
    archive = b"".join(markdown_zip(all_conversations(shelf.store, "ann")))
    with zipfile.ZipFile(io.BytesIO(archive)) as read:
        assert read.testzip() is None
        names = read.namelist()
        assert all("/" not in name and name.endswith(").md") for name in names)
    assert import_file("ann", archive, shelf.store) == ImportResult(0, 2, ())
    assert import_file("bob", io.BytesIO(archive), shelf.store) == ImportResult(2, 0, ())
    assert {entry.title for entry in shelf.store.entries("bob")} == {"one", 'two/../"x"'}


def test_an_empty_zip_is_one(shelf: Library) -> None:
    archive = b"".join(markdown_zip([]))
    assert zipfile.ZipFile(io.BytesIO(archive)).namelist() == []
    result = import_file("ann", archive, shelf.store)
    assert result == ImportResult(0, 0, ("The file holds no conversations.",))


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("../../etc/passwd", "etc passwd (c1234567).md"),
        ("C:\\con|<x>?*", "C con x (c1234567).md"),
        (" . ", "Conversation (c1234567).md"),
        ("x" * 300, "x" * 60 + " (c1234567).md"),
        ("学习", "学习 (c1234567).md"),
    ],
)
def test_names_of_files_are_harmless(title: str, name: str) -> None:
    assert file_name(WholeConversation(conversation_id="c123456789", title=title), "md") == name


def test_a_zip_from_chatgpt_holds_other_files_too(shelf: Library) -> None:
    talk = {"mapping": {"u1": {"parent": None, "message": None}}, "title": "Empty talk"}
    archive = zipped(
        {
            "conversations.json": json.dumps([talk]).encode(),
            "user.json": b'{"email": "a@b.c"}',
            "chat.html": b"<html>",
            "__MACOSX/._conversations.json": b"\xff\x00",
        }
    )
    assert import_file("ann", archive, shelf.store) == ImportResult(1, 0, ())


def test_broken_files_in_a_zip_are_told_of_by_name(shelf: Library) -> None:
    good = json.dumps(document()).encode()
    archive = zipped({"bad.json": b"{", "words.md": b"only words", "x/good.json": good})
    result = import_file("ann", archive, shelf.store)
    assert result.num_imported == 1
    assert [problem.split()[0] for problem in result.problems] == ["bad.json", "words.md"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00garbage",
        b"{",
        b"[1, 2",
        b"{}",
        b"[]",
        b"[[]]",
        b'{"a": NaN}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"PK\x03\x04 not really a zip",
        b"PK\x05\x06",
        b"SQLite format 3\0",
    ],
)
def test_files_of_other_kinds_are_refused_with_a_sentence(shelf: Library, content: bytes) -> None:
    result = import_file("ann", content, shelf.store)
    assert result.num_imported == result.num_known == 0
    [problem] = result.problems
    assert problem.startswith("The file ")
    assert problem.endswith((".", ".'"))
    assert len(problem) < 300


def test_a_zip_that_unpacks_to_far_more_is_stopped(shelf: Library) -> None:
    bomb = zipped({f"{number}.md": b"\0" * 5_000_000 for number in range(20)})
    assert len(bomb) < 200_000
    limits = ImportLimits(max_unpacked_bytes=8 * 1024**2)
    result = import_file("ann", bomb, shelf.store, limits)
    assert "unpacks to more than 8 MB" in result.problems[-1]
    many = zipped({f"{number}.md": b"" for number in range(30)})
    result = import_file("ann", many, shelf.store, ImportLimits(max_files=29))
    assert "more than 29 files" in result.problems[0]


def test_a_zip_whose_sizes_are_lies_is_stopped(shelf: Library) -> None:
    honest = zipped({"a.md": b"## User\n" + b"x" * 1_000_000})
    size = (1_000_008).to_bytes(4, "little")
    assert honest.count(size) == 2
    lying = honest.replace(size, (10).to_bytes(4, "little"))
    result = import_file("ann", lying, shelf.store, ImportLimits(max_unpacked_bytes=100_000))
    assert result.num_imported == 0
    assert len(result.problems) == 1


def test_a_file_that_is_too_large_is_refused(shelf: Library) -> None:
    limits = ImportLimits(max_bytes=2 * 1024**2)
    result = import_file("ann", io.BytesIO(b" " * 3 * 1024**2), shelf.store, limits)
    assert result.problems == ("The file is larger than 2 MB: split it.",)


def test_the_bound_of_conversations_holds(shelf: Library) -> None:
    limits = ConversationLimits(max_conversations=60)
    shelf.store = ConversationStore(shelf.database, limits, shelf.clock)
    wholes = [WholeConversation(conversation_id=f"c{number}", title="T") for number in range(120)]
    result = import_file("ann", b"".join(export_json(wholes)), shelf.store)
    assert result.num_imported == 50  # in whole parts
    assert "60 conversations are the most" in result.problems[0]
    assert len(shelf.store.entries("ann")) == 50


def test_a_summary_may_be_no_longer_than_a_message(shelf: Library) -> None:
    cut = ContextCut("q", 2, "x" * (shelf.store.limits.max_message_chars + 1))
    question = WholeMessage(message_id="q", parent_id=None, role=Role.USER, text="Hi", cut=cut)
    whole = WholeConversation(conversation_id="c", title="T", messages=(question,))
    result = import_file("ann", b"".join(export_json([whole])), shelf.store)
    assert result.num_imported == 0
    assert "200,000 are the most" in result.problems[0]


def test_no_more_problems_are_listed_than_can_be_read(shelf: Library) -> None:
    file = document()
    file["conversations"] *= 80
    for broken in file["conversations"][:1]:
        broken["messages"] = None
    result = import_file("ann", json.dumps(file).encode(), shelf.store)
    assert len(result.problems) == 51
    assert result.problems[-1] == "And 30 more like these."


def test_the_same_conversation_twice_in_a_file_is_one(shelf: Library) -> None:
    file = document()
    file["conversations"] *= 2
    result = import_file("ann", json.dumps(file).encode(), shelf.store)
    assert result == ImportResult(1, 1, ())


def test_a_thousand_conversations_are_imported_in_seconds(shelf: Library) -> None:
    dice = random.Random(3)
    words = ["".join(dice.choices("abcdefghijklmnop", k=6)) for _ in range(2000)]

    def text() -> str:
        return " ".join(dice.choices(words, k=60))

    wholes = [
        with_ids_of(str(number), of_texts(*(text() for _ in range(10)))) for number in range(1000)
    ]
    file = b"".join(export_json(wholes))
    begun_s = time.perf_counter()
    assert import_file("ann", file, shelf.store) == ImportResult(1000, 0, ())
    took_s = time.perf_counter() - begun_s
    begun_s = time.perf_counter()
    assert import_file("ann", file, shelf.store) == ImportResult(0, 1000, ())
    again_s = time.perf_counter() - begun_s
    print(f"1,000 conversations ({len(file) / 1e6:.1f} MB): {took_s:.1f} s, again {again_s:.1f} s")  # noqa: T201
    assert max(took_s, again_s) < MAX_IMPORT_S * _MACHINE_FACTOR
