"""Titles and presets."""

from __future__ import annotations

import pytest

from tests.storage_factories import Library
from ui.chat.conversation import ChatError, LimitError, NotFoundError
from ui.chat.settings import ChatSettings
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.store import ConversationStore


def test_titles_are_one_line(shelf: Library) -> None:
    asked = shelf.ask("ann", "Hello")
    entry = shelf.store.rename("ann", asked.conversation_id, "  My\n<b>title</b>\t\0 ")
    assert entry.title == "My <b>title</b> \ufffd"
    assert shelf.store.entry("ann", asked.conversation_id) == entry


def test_an_automatic_title_never_replaces_a_persons(shelf: Library) -> None:
    asked = shelf.ask("ann", "Hello")
    conversation_id = asked.conversation_id
    title = shelf.store.set_title("ann", conversation_id, "Greetings", by_person=False).title
    assert title == "Greetings"
    shelf.store.set_title("ann", conversation_id, " ", by_person=False)
    assert shelf.store.entry("ann", conversation_id).title == "Greetings"
    shelf.store.rename("ann", conversation_id, "Mine")
    shelf.store.set_title("ann", conversation_id, "Theirs", by_person=False)
    assert shelf.store.entry("ann", conversation_id).title == "Mine"


def test_titles_are_bounded(shelf: Library) -> None:
    asked = shelf.ask("ann", "Hello")
    with pytest.raises(LimitError):
        shelf.store.rename("ann", asked.conversation_id, "x" * 201)
    with pytest.raises(ChatError):
        shelf.store.rename("ann", asked.conversation_id, " \n ")
    automatic = shelf.store.set_title("ann", asked.conversation_id, "x" * 300, by_person=False)
    assert automatic.title == "x" * 200


def test_presets_are_kept_by_name(shelf: Library) -> None:
    store = shelf.store
    poet = ChatSettings(system_prompt="Rhyme.", temperature=1.2, seed=3)
    store.save_preset("ann", " Poet ", poet)
    store.save_preset("ann", "coder", ChatSettings(temperature=0.0))
    store.save_preset("ann", "Poet", ChatSettings(system_prompt="Rhyme well."))
    assert store.presets("ann") == (
        ("coder", ChatSettings(temperature=0.0)),
        ("Poet", ChatSettings(system_prompt="Rhyme well.")),
    )
    store.delete_preset("ann", "Poet")
    assert [name for name, _ in store.presets("ann")] == ["coder"]
    with pytest.raises(NotFoundError):
        store.delete_preset("ann", "Poet")


def test_presets_are_bounded(shelf: Library) -> None:
    store = ConversationStore(shelf.database, ConversationLimits(max_presets=2), shelf.clock)
    for name in ("a", "b", "b"):
        store.save_preset("ann", name, ChatSettings())
    with pytest.raises(LimitError):
        store.save_preset("ann", "c", ChatSettings())
    assert [name for name, _ in store.presets("ann")] == ["a", "b"]
    with pytest.raises(LimitError):
        store.save_preset("bob", "x" * 61, ChatSettings())
    with pytest.raises(ChatError):
        store.save_preset("bob", " ", ChatSettings())


def test_settings_that_are_not_allowed_any_more_do_not_lock_a_conversation(
    shelf: Library,
) -> None:
    asked = shelf.ask("ann", "Hello", settings=ChatSettings(temperature=99.0))
    assert shelf.store.conversation("ann", asked.conversation_id).settings == ChatSettings()


def test_what_is_restored_counts_too(shelf: Library) -> None:
    limits = ConversationLimits(max_conversations=1)
    store = ConversationStore(shelf.database, limits, shelf.clock)
    first = shelf.exchange("ann", "one", "1")
    store.delete_conversation("ann", first.conversation_id)
    second = shelf.exchange("ann", "two", "2")
    with pytest.raises(LimitError):
        store.restore_conversation("ann", first.conversation_id)
    store.restore_conversation("ann", second.conversation_id)  # was not deleted
    store.delete_conversation("ann", second.conversation_id)
    store.restore_conversation("ann", first.conversation_id)
    assert [entry.title for entry in store.entries("ann")] == ["one"]
