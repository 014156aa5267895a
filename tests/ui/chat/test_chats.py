"""The store of chats: whose they are, their order, their bounds."""

from __future__ import annotations

import pytest

from engine import FinishReason
from ui.chat.chats import (
    Chat,
    ChatError,
    ChatLimitError,
    ChatLimits,
    ChatNotFoundError,
    ChatStore,
    Message,
    ReplyFacts,
    Role,
    without_last_reply,
)

REPLY = Message(Role.ASSISTANT, "Hi!", ReplyFacts(finish_reason=FinishReason.STOP))


def begin_chat(store: ChatStore, person: str, text: str) -> Chat:
    chat = store.with_question(store.new_chat(person), text)
    store.save(person, chat)
    return chat


def test_a_chat_is_kept_with_its_messages_in_order() -> None:
    store = ChatStore()
    chat = begin_chat(store, "alice", "Hello")
    store.add_reply("alice", chat.chat_id, REPLY)
    kept = store.get("alice", chat.chat_id)
    assert kept.messages == (Message(Role.USER, "Hello"), REPLY)


def test_br_59_a_chat_of_somebody_else_is_not_there() -> None:
    store = ChatStore()
    chat = begin_chat(store, "alice", "My code word is OTTER-017.")
    assert store.chats_of("bob") == ()
    with pytest.raises(ChatNotFoundError):
        store.get("bob", chat.chat_id)
    with pytest.raises(ChatNotFoundError):
        store.delete("bob", chat.chat_id)
    with pytest.raises(ChatNotFoundError):
        store.add_reply("bob", chat.chat_id, REPLY)
    assert store.get("alice", chat.chat_id) == chat


def test_the_chat_changed_last_comes_first() -> None:
    store = ChatStore()
    first = begin_chat(store, "alice", "one")
    begin_chat(store, "alice", "two")
    store.add_reply("alice", first.chat_id, REPLY)
    assert [chat.title for chat in store.chats_of("alice")] == ["one", "two"]


def test_a_deleted_chat_is_gone() -> None:
    store = ChatStore()
    chat = begin_chat(store, "alice", "one")
    store.delete("alice", chat.chat_id)
    assert store.chats_of("alice") == ()
    with pytest.raises(ChatNotFoundError, match="not there any more"):
        store.add_reply("alice", chat.chat_id, REPLY)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello", "Hello"),
        ("  two\n\tlines ", "two lines"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("x" * 48, "x" * 48),
        ("x" * 49, "x" * 47 + "…"),
    ],
)
def test_the_title_is_the_start_of_the_first_message(text: str, title: str) -> None:
    assert begin_chat(ChatStore(), "alice", text).title == title


def test_the_bound_on_chats_is_told_and_deleting_makes_room() -> None:
    store = ChatStore(ChatLimits(max_chats_per_person=1))
    chat = begin_chat(store, "alice", "one")
    with pytest.raises(ChatLimitError, match="You have 1 chats"):
        store.new_chat("alice")
    store.new_chat("bob")
    store.delete("alice", chat.chat_id)
    store.new_chat("alice")


def test_the_bound_on_messages_leaves_room_for_the_reply() -> None:
    store = ChatStore(ChatLimits(max_messages_per_chat=3))
    chat = begin_chat(store, "alice", "one")
    store.add_reply("alice", chat.chat_id, REPLY)
    with pytest.raises(ChatLimitError, match="has 2 messages"):
        store.with_question(store.get("alice", chat.chat_id), "two")


def test_the_bound_on_a_message_is_told_with_both_numbers() -> None:
    store = ChatStore(ChatLimits(max_message_chars=1_000))
    with pytest.raises(ChatLimitError, match=r"1,001 characters; the most is 1,000"):
        store.with_question(Chat(chat_id="c"), "x" * 1_001)


def test_the_person_not_seen_for_longest_makes_room() -> None:
    store = ChatStore(ChatLimits(max_people=2))
    for person in ("alice", "bob", "alice", "carol"):
        begin_chat(store, person, "one")
    assert store.chats_of("bob") == ()
    assert len(store.chats_of("alice")) == 2


def test_without_last_reply_keeps_the_question() -> None:
    chat = Chat(chat_id="c", messages=(Message(Role.USER, "Hello"), REPLY))
    assert without_last_reply(chat).messages == (Message(Role.USER, "Hello"),)
    assert without_last_reply(without_last_reply(chat)).messages == (Message(Role.USER, "Hello"),)


def test_br_43_there_is_nothing_to_answer_again_in_an_empty_chat() -> None:
    with pytest.raises(ChatError, match="Write a message first"):
        without_last_reply(Chat(chat_id="c"))
