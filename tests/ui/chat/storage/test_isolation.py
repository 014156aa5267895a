"""Nobody reaches what is another's, through any method of the store."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.storage_factories import Library
from ui.chat.conversation import NotFoundError, Role
from ui.chat.exchange.export import all_conversations
from ui.chat.settings import ChatSettings
from ui.chat.storage.store import ConversationStore
from ui.chat.storage.whole import WholeConversation, WholeMessage

CANARY = "canary-of-ann"
SETTINGS = ChatSettings(system_prompt=f"system {CANARY}")
Act = Callable[[ConversationStore, str], object]

REFUSED: dict[str, Act] = {
    "entry": lambda store, cid: store.entry("bob", cid),
    "conversation": lambda store, cid: store.conversation("bob", cid),
    "message": lambda store, cid: store.message("bob", "a1"),
    "message_ids": lambda store, cid: store.message_ids("bob", cid),
    "conversation_id_of": lambda store, cid: store.conversation_id_of("bob", "a1"),
    "path": lambda store, cid: store.path("bob", "a1"),
    "path_above": lambda store, cid: store.path_above("bob", cid, "a1"),
    "ask": lambda store, cid: store.ask(
        "bob",
        conversation_id=cid,
        question_id="bq",
        answer_id="ba",
        text="x",
        settings=ChatSettings(),
    ),
    "answer_again": lambda store, cid: store.answer_again(
        "bob", "a1", answer_id="ba", settings=ChatSettings()
    ),
    "resume_answer": lambda store, cid: store.resume_answer("bob", "a1", ChatSettings()),
    "edit_answer": lambda store, cid: store.edit_answer("bob", "a1", "x", "ba"),
    "select": lambda store, cid: store.select("bob", "a1"),
    "delete_message": lambda store, cid: store.delete_message("bob", "a1"),
    "restore_message": lambda store, cid: store.restore_message("bob", "a2"),
    "rename": lambda store, cid: store.rename("bob", cid, "x"),
    "set_title": lambda store, cid: store.set_title("bob", cid, "x", by_person=True),
    "set_pinned": lambda store, cid: store.set_pinned("bob", cid, True),
    "set_archived": lambda store, cid: store.set_archived("bob", cid, True),
    "delete_conversation": lambda store, cid: store.delete_conversation("bob", cid),
    "restore_conversation": lambda store, cid: store.restore_conversation("bob", cid),
    "whole_conversation": lambda store, cid: store.whole_conversation("bob", cid),
    "delete_preset": lambda store, cid: store.delete_preset("bob", "mine"),
}
EMPTY: dict[str, Act] = {
    "entries": lambda store, cid: store.entries("bob"),
    "search": lambda store, cid: store.search("bob", "canary"),
    "conversation_ids": lambda store, cid: store.conversation_ids("bob"),
    "transcripts": lambda store, cid: store.transcripts("bob", ["a1", "a2"]),
    "presets": lambda store, cid: store.presets("bob"),
}
BESIDE: dict[str, Act] = {
    "save_preset": lambda store, cid: store.save_preset("bob", "mine", ChatSettings()),
    "add_whole": lambda store, cid: store.add_whole("bob", [taken(cid)]),
}
OF_NOBODY = {
    *("write_texts", "finish_answer", "interrupt_unfinished", "now_s"),
    *("purge", "due_to_be_erased"),
}


def taken(conversation_id: str) -> WholeConversation:
    """Bob's file, with the ids of what is Ann's."""
    message = WholeMessage(message_id="a1", parent_id=None, role=Role.USER, text="from bob")
    return WholeConversation(
        conversation_id=conversation_id, title="bob's", active_root_id="a1", messages=(message,)
    )


def ann_has(shelf: Library) -> str:
    """A conversation with an answer (a1) and a deleted one (a2), a preset and a transcript."""
    asked = shelf.ask("ann", f"question {CANARY}", settings=SETTINGS)
    shelf.finish("a1", f"answer {CANARY}", transcript=(b"digest", CANARY.encode()))
    shelf.again("ann", "a1", f"deleted {CANARY}")
    shelf.store.delete_message("ann", "a2")
    shelf.store.save_preset("ann", "mine", SETTINGS)
    return asked.conversation_id


def all_of_ann(store: ConversationStore, conversation_id: str) -> object:
    return (
        store.whole_conversation("ann", conversation_id),
        store.conversation("ann", conversation_id),
        store.entries("ann"),
        store.presets("ann"),
        store.search("ann", "canary"),
        store.transcripts("ann", ["a1"]),
    )


def test_every_method_is_tried() -> None:
    methods = {
        name
        for name, method in inspect.getmembers(ConversationStore, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == {*REFUSED, *EMPTY, *BESIDE, *OF_NOBODY}


@pytest.mark.parametrize("name", REFUSED)
def test_br_59_what_is_anothers_does_not_exist(shelf: Library, name: str) -> None:
    conversation_id = ann_has(shelf)
    before = all_of_ann(shelf.store, conversation_id)
    with pytest.raises(NotFoundError) as refusal:
        REFUSED[name](shelf.store, conversation_id)
    assert "canary" not in str(refusal.value)
    assert all_of_ann(shelf.store, conversation_id) == before


@pytest.mark.parametrize("name", EMPTY)
def test_br_59_a_new_person_sees_nothing(shelf: Library, name: str) -> None:
    conversation_id = ann_has(shelf)
    assert list(EMPTY[name](shelf.store, conversation_id)) == []  # type: ignore[call-overload]


@pytest.mark.parametrize("name", BESIDE)
def test_br_59_what_somebody_adds_is_their_own(shelf: Library, name: str) -> None:
    conversation_id = ann_has(shelf)
    before = all_of_ann(shelf.store, conversation_id)
    BESIDE[name](shelf.store, conversation_id)
    assert all_of_ann(shelf.store, conversation_id) == before
    theirs = [repr(whole) for whole in all_conversations(shelf.store, "bob")]
    theirs.append(repr(shelf.store.presets("bob")))
    assert not any("canary" in text for text in theirs)


def test_br_59_a_question_id_of_another_tells_nothing(shelf: Library) -> None:
    ann_has(shelf)
    with pytest.raises(NotFoundError):
        shelf.ask("bob", "x", question_id="q1")


def test_both_work_side_by_side(shelf: Library) -> None:
    shelf.exchange("ann", "apples", "one")
    shelf.exchange("bob", "apples", "two")
    assert [hit.excerpt for hit in shelf.store.search("ann", "two")] == []
    assert [entry.title for entry in shelf.store.entries("bob")] == ["apples"]
    assert len(shelf.store.search("bob", "apples")) == 2
