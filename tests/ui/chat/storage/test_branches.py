"""Editing, choosing, deleting and restoring messages."""

from __future__ import annotations

import pytest

from tests.storage_factories import DAY_S, Library
from ui.chat.conversation import ChatError, ConflictError, MessageState, NotFoundError, Role


def test_an_edited_answer_is_a_new_variant(shelf: Library) -> None:
    asked = shelf.exchange("ann", "Hello", "Hi")
    message = shelf.store.edit_answer("ann", asked.answer_id, "Good day", "mine")
    assert message == shelf.store.message("ann", "mine")
    assert (message.text, message.role, message.facts) == ("Good day", Role.ASSISTANT, None)
    assert message.variant_ids == ("a1", "mine")
    assert shelf.shown("ann", asked.conversation_id) == ["Hello", "Good day"]
    assert shelf.store.message("ann", "a1").text == "Hi"
    with pytest.raises(ConflictError):
        shelf.store.edit_answer("ann", asked.question_id, "x", "e")
    with pytest.raises(ChatError):
        shelf.store.edit_answer("ann", asked.answer_id, "\n", "e")
    with pytest.raises(ConflictError):
        shelf.store.edit_answer("ann", asked.answer_id, "x", "mine")


def test_an_answer_being_written_is_left_alone(shelf: Library) -> None:
    asked = shelf.ask("ann", "Hello")
    with pytest.raises(ConflictError):
        shelf.store.edit_answer("ann", asked.answer_id, "x", "e")
    with pytest.raises(ConflictError):
        shelf.store.delete_message("ann", asked.answer_id)
    shelf.store.delete_message("ann", asked.question_id)
    assert shelf.store.message("ann", asked.answer_id).state is MessageState.WRITING


def test_a_deleted_message_leaves_what_is_below(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    conversation_id = first.conversation_id
    second = shelf.exchange("ann", "two", "2", conversation_id)
    assert shelf.store.delete_message("ann", first.answer_id) == conversation_id
    assert shelf.shown("ann", conversation_id) == ["one", "two", "2"]
    shelf.store.delete_message("ann", first.answer_id)
    shelf.exchange("ann", "three", "3", conversation_id)
    assert shelf.store.restore_message("ann", first.answer_id) == conversation_id
    assert shelf.shown("ann", conversation_id) == ["one", "1", "two", "2", "three", "3"]
    assert shelf.store.restore_message("ann", second.answer_id) == conversation_id


def test_variants_beside_a_deleted_message_stay_within_reach(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    second = shelf.exchange("ann", "two", "2", first.conversation_id)
    shelf.again("ann", first.question_id, "1!")
    shelf.store.select("ann", second.question_id)
    shelf.store.delete_message("ann", first.answer_id)
    assert shelf.shown("ann", first.conversation_id) == ["one", "two", "2"]
    assert shelf.store.message("ann", second.question_id).variant_ids == ("q2", "a3")
    shelf.store.select("ann", "a3")
    assert shelf.shown("ann", first.conversation_id) == ["one", "1!"]


def test_after_the_last_message_the_nearest_variant_is_shown(shelf: Library) -> None:
    asked = shelf.exchange("ann", "one", "1")
    for text in ("1!", "1?"):
        shelf.again("ann", asked.question_id, text)
    conversation_id = asked.conversation_id
    shelf.store.delete_message("ann", "a3")
    assert shelf.shown("ann", conversation_id) == ["one", "1!"]
    shelf.store.delete_message("ann", "a1")
    assert shelf.shown("ann", conversation_id) == ["one", "1!"]
    shelf.store.delete_message("ann", "a2")
    assert shelf.shown("ann", conversation_id) == ["one"]
    shelf.store.restore_message("ann", "a1")
    assert shelf.shown("ann", conversation_id) == ["one", "1"]


def test_after_a_deleted_answer_the_next_question_goes_where_it_was(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    shelf.store.delete_message("ann", first.answer_id)
    second = shelf.exchange("ann", "two", "2", first.conversation_id)
    assert shelf.shown("ann", first.conversation_id) == ["one", "two", "2"]
    shelf.store.restore_message("ann", first.answer_id)
    assert shelf.shown("ann", first.conversation_id) == ["one", "1", "two", "2"]
    assert shelf.store.message("ann", second.question_id).variant_ids == ("q2",)


def test_what_is_left_below_a_restored_message_is_shown(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    shelf.exchange("ann", "two", "2", first.conversation_id)
    shelf.exchange("ann", "two!", "2!", first.conversation_id, parent_id="a1")
    shelf.again("ann", "q1", "1!")
    for message_id in ("a1", "q3", "a3"):
        shelf.store.delete_message("ann", message_id)
    assert shelf.shown("ann", first.conversation_id) == ["one", "1!"]
    shelf.store.restore_message("ann", "a1")
    assert shelf.shown("ann", first.conversation_id) == ["one", "1", "two", "2"]


def test_deleted_messages_cannot_be_worked_with(shelf: Library) -> None:
    asked = shelf.exchange("ann", "one", "1")
    shelf.store.delete_message("ann", asked.answer_id)
    for act in (
        lambda: shelf.store.select("ann", asked.answer_id),
        lambda: shelf.store.edit_answer("ann", asked.answer_id, "x", "e"),
        lambda: shelf.again("ann", asked.answer_id, "x"),
        lambda: shelf.store.message("ann", asked.answer_id),
    ):
        with pytest.raises(NotFoundError):
            act()


def test_transcripts_that_hold_deleted_words_go(shelf: Library) -> None:
    first = shelf.ask("ann", "one")
    shelf.finish("a1", "1", transcript=(b"1", b"t"))
    shelf.ask("ann", "two", first.conversation_id)
    shelf.finish("a2", "2", transcript=(b"2", b"t"))
    shelf.store.delete_message("ann", "q2")
    assert shelf.store.transcripts("ann", ["a1", "a2"]) == [(b"1", b"t")]


def test_a_transcript_with_words_deleted_while_it_was_written_is_not_kept(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    shelf.ask("ann", "two", first.conversation_id)
    shelf.store.delete_message("ann", "q1")
    shelf.finish("a2", "2", transcript=(b"2", b"with one"))
    assert shelf.store.transcripts("ann", ["a1", "a2"]) == []
    shelf.ask("ann", "three", first.conversation_id)
    shelf.finish("a3", "3", transcript=(b"3", b"without one"))
    assert shelf.store.transcripts("ann", ["a3"]) == [(b"3", b"without one")]


def test_a_deleted_conversation_is_gone_until_restored(shelf: Library) -> None:
    asked = shelf.exchange("ann", "one", "1")
    store, conversation_id = shelf.store, asked.conversation_id
    store.delete_conversation("ann", conversation_id)
    store.delete_conversation("ann", conversation_id)
    assert store.entries("ann") == ()
    for act in (
        lambda: store.entry("ann", conversation_id),
        lambda: store.conversation("ann", conversation_id),
        lambda: store.message("ann", asked.answer_id),
        lambda: store.delete_message("ann", asked.answer_id),
        lambda: shelf.ask("ann", "x", conversation_id),
        lambda: shelf.ask("ann", "one", None, question_id="q1"),
        lambda: store.rename("ann", conversation_id, "x"),
    ):
        with pytest.raises(NotFoundError):
            act()
    shelf.clock.now_s += DAY_S - 10
    assert store.restore_conversation("ann", conversation_id).title == "one"
    assert shelf.shown("ann", conversation_id) == ["one", "1"]


def test_after_a_day_it_cannot_be_restored(shelf: Library) -> None:
    asked = shelf.exchange("ann", "one", "1")
    shelf.store.delete_conversation("ann", asked.conversation_id)
    shelf.clock.now_s += DAY_S + 1
    with pytest.raises(NotFoundError):
        shelf.store.restore_conversation("ann", asked.conversation_id)


def test_an_answer_that_ends_after_its_conversation_was_deleted_is_kept(shelf: Library) -> None:
    asked = shelf.ask("ann", "one")
    shelf.store.delete_conversation("ann", asked.conversation_id)
    shelf.finish(asked.answer_id, "late")
    shelf.store.restore_conversation("ann", asked.conversation_id)
    assert shelf.shown("ann", asked.conversation_id) == ["one", "late"]
