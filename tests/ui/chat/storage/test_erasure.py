"""What was deleted a day ago is gone from the file, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage_factories import DAY_S, Library, library
from ui.chat.conversation import ContextCut, NotFoundError

CANARY = "Xylophonquartz"


def later(shelf: Library) -> int:
    shelf.clock.now_s += DAY_S + 1
    return shelf.store.purge(shelf.clock.now_s)


def in_files(data_dir: Path, needle: str) -> list[str]:
    return [
        path.name for path in data_dir.iterdir() if needle.encode() in path.read_bytes().lower()
    ]


def test_nothing_goes_before_a_day_is_over(shelf: Library) -> None:
    asked = shelf.exchange("ann", "one", "1")
    shelf.store.delete_message("ann", asked.answer_id)
    shelf.store.delete_conversation("ann", asked.conversation_id)
    shelf.clock.now_s += DAY_S - 10
    assert shelf.store.purge(shelf.clock.now_s) == 0
    shelf.store.restore_conversation("ann", asked.conversation_id)
    shelf.store.restore_message("ann", asked.answer_id)
    assert shelf.shown("ann", asked.conversation_id) == ["one", "1"]


def test_a_deleted_conversation_is_erased_with_all_branches(shelf: Library) -> None:
    asked = shelf.exchange("ann", "one", "1", conversation_id=None)
    shelf.exchange("ann", "two", "2", asked.conversation_id)
    shelf.again("ann", "a1", "1!")
    kept = shelf.exchange("ann", "other", "kept")
    shelf.store.delete_conversation("ann", asked.conversation_id)
    assert later(shelf) == 1
    with pytest.raises(NotFoundError):
        shelf.store.restore_conversation("ann", asked.conversation_id)
    with shelf.database.reading() as connection:
        count = connection.exec_driver_sql("SELECT count(*) FROM messages").scalar_one()
        check = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    assert (count, check) == (2, [])
    assert shelf.shown("ann", kept.conversation_id) == ["other", "kept"]
    assert len(shelf.store.search("ann", "kept")) == 1
    assert later(shelf) == 0


def test_an_erased_message_keeps_its_place_while_something_is_below(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    shelf.exchange("ann", "two", "2", first.conversation_id)
    shelf.store.delete_message("ann", first.answer_id)
    assert later(shelf) == 1
    assert shelf.shown("ann", first.conversation_id) == ["one", "two", "2"]
    for act in (shelf.store.restore_message, shelf.store.delete_message):
        with pytest.raises(NotFoundError):
            act("ann", first.answer_id)
    shelf.exchange("ann", "three", "3", first.conversation_id)
    assert shelf.shown("ann", first.conversation_id)[-2:] == ["three", "3"]


def test_erased_ends_of_branches_disappear_and_their_keys_can_be_used_again(
    shelf: Library,
) -> None:
    first = shelf.exchange("ann", "one", "1")
    shelf.exchange("ann", "two", "2", first.conversation_id)
    for message_id in ("a1", "q2", "a2"):
        shelf.store.delete_message("ann", message_id)
    assert later(shelf) == 3
    with shelf.database.reading() as connection:
        left = connection.exec_driver_sql("SELECT message_id FROM messages").scalars().all()
    assert left == ["q1"]
    shelf.again("ann", "q1", "new")
    shelf.exchange("ann", "next", "newer", first.conversation_id)
    assert shelf.shown("ann", first.conversation_id) == ["one", "new", "next", "newer"]
    for message_id in ("q1", "a3", "q4", "a4"):
        shelf.store.delete_message("ann", message_id)
    assert later(shelf) == 4
    shelf.exchange("ann", "again", "from the start", first.conversation_id)
    assert shelf.shown("ann", first.conversation_id) == ["again", "from the start"]


def test_summaries_of_erased_messages_go_too(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    cut = ContextCut("q2", 2, "They spoke about one.")
    shelf.exchange("ann", "two", "2", first.conversation_id, cut=cut)
    shelf.store.delete_message("ann", "q1")
    later(shelf)
    assert shelf.store.message("ann", "q2").cut == cut._replace(summary="")


def test_no_word_of_it_is_left_in_the_file(tmp_path: Path) -> None:
    text = f"{CANARY} and much more of it. " * 400
    with library(tmp_path) as shelf:
        kept = shelf.exchange("ann", "kept question", "kept answer")
        for number in range(30):
            shelf.exchange("bob", f"other {number}", "words " * 50)
        asked = shelf.exchange("ann", f"secret {CANARY}", text)
        shelf.store.delete_conversation("ann", asked.conversation_id)
        half = shelf.exchange("ann", "half", text)
        shelf.store.delete_message("ann", half.answer_id)
        shelf.exchange("ann", "and", "on", half.conversation_id)
        assert in_files(tmp_path, CANARY.lower())
        assert later(shelf) == 2
        # The index keeps parts of three letters, sorted; these stand in no other word.
        assert in_files(tmp_path, CANARY.lower()) == []
        assert in_files(tmp_path, "xyl") == []
        assert shelf.shown("ann", kept.conversation_id) == ["kept question", "kept answer"]
        assert shelf.shown("ann", half.conversation_id) == ["half", "and", "on"]
        assert len(shelf.store.search("bob", "words")) == 30


def test_many_things_are_erased_in_parts(shelf: Library) -> None:
    keep = shelf.exchange("ann", "stay", "here")
    for number in range(120):
        asked = shelf.ask("ann", f"go {number}")
        shelf.store.delete_conversation("ann", asked.conversation_id)
    assert later(shelf) == 120
    assert [entry.conversation_id for entry in shelf.store.entries("ann")] == [keep.conversation_id]
