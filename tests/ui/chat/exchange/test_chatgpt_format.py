"""Conversations that people bring from ChatGPT."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.storage_factories import Library
from ui.chat.exchange.importing import ImportResult, import_file


def node(
    node_id: str,
    parent: str | None,
    role: str | None,
    *parts: object,
    created_s: float = 0.0,
    **more: Any,
) -> tuple[str, dict[str, Any]]:
    message = None
    if role is not None:
        message = {
            "id": node_id,
            "author": {"role": role},
            "create_time": created_s or None,
            "content": {"content_type": "text", "parts": list(parts)},
            **more,
        }
    return node_id, {"id": node_id, "message": message, "parent": parent, "children": []}


def entry(*nodes: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "title": "Shade plants",
        "create_time": 1700000000.5,
        "update_time": 1700000100.0,
        "mapping": dict(nodes),
        "conversation_id": "6e8a0f0c-1111-2222-3333-444455556666",
        **more,
    }


TALK = entry(
    node("root", None, None),
    node("sys", "root", "system", ""),
    node("u1", "sys", "user", "Which plants?", created_s=1700000001.0),
    node("a1", "u1", "assistant", "Ferns.", created_s=1700000002.0),
    node("a1b", "u1", "assistant", "Hostas.", created_s=1700000003.0),
    node("tool", "a1", "tool", "search result", created_s=1700000004.0),
    node("u2", "tool", "user", {"asset_pointer": "x"}, "And this?", created_s=1700000005.0),
    node("think", "u2", "assistant", content={"content_type": "thoughts", "thoughts": []}),
    node("a2", "think", "assistant", "A fern.", "It likes shade.", created_s=1700000006.0),
    current_node="a2",
)


def load(shelf: Library, content: Any) -> ImportResult:
    return import_file("ann", json.dumps(content).encode(), shelf.store)


def test_words_and_branches_come_along(shelf: Library) -> None:
    assert load(shelf, [TALK]) == ImportResult(1, 0, ())
    [imported] = shelf.store.entries("ann")
    assert (imported.title, imported.updated_s) == ("Shade plants", 1700000100.0)
    conversation = shelf.store.conversation("ann", imported.conversation_id)
    assert [message.text for message in conversation.messages] == [
        "Which plants?",
        "Ferns.",
        "And this?",
        "A fern.\n\nIt likes shade.",
    ]
    assert conversation.messages[1].variant_ids == ("a1", "a1b")
    assert conversation.messages[0].created_s == 1700000001.0
    shelf.store.set_title("ann", imported.conversation_id, "Automatic", by_person=False)
    assert shelf.store.entries("ann")[0].title == "Shade plants"
    assert load(shelf, [TALK]) == ImportResult(0, 1, ())


def test_the_shown_branch_is_the_one_shown_there(shelf: Library) -> None:
    load(shelf, [{**TALK, "current_node": "a1b"}])
    [imported] = shelf.store.entries("ann")
    assert shelf.shown("ann", imported.conversation_id) == ["Which plants?", "Hostas."]


def test_hidden_messages_stay_behind(shelf: Library) -> None:
    hidden = {"metadata": {"is_visually_hidden_from_conversation": True}}
    load(
        shelf, [entry(node("u0", None, "user", "hidden", **hidden), node("u1", "u0", "user", "x"))]
    )
    [imported] = shelf.store.entries("ann")
    assert shelf.shown("ann", imported.conversation_id) == ["x"]


def test_entries_without_id_or_title(shelf: Library) -> None:
    bare = entry(node("u1", None, "user", "Hello there"))
    del bare["conversation_id"], bare["title"]
    assert load(shelf, [bare]) == ImportResult(1, 0, ())
    assert load(shelf, bare) == ImportResult(0, 1, ())
    assert [imported.title for imported in shelf.store.entries("ann")] == ["Hello there"]


@pytest.mark.parametrize(
    "broken",
    [
        None,
        5,
        {"title": "x"},
        {"mapping": {"u1": None}},
        entry(
            node("loop1", "loop2", None),
            node("loop2", "loop1", None),
            node("u", "loop1", "user", "x"),
        ),
        entry(node("u1", "u2", "user", "x"), node("u2", "u1", "user", "y")),
        entry(node("u1", None, "user", "x" * 200_001)),
    ],
)
def test_a_broken_entry_is_told_of_and_the_rest_imported(shelf: Library, broken: Any) -> None:
    result = load(shelf, [broken, TALK])
    assert (result.num_imported, len(result.problems)) == (1, 1)
    assert result.problems[0].startswith("Conversation 1")


@pytest.mark.parametrize(
    "odd",
    [
        entry(node("u1", None, "user", "x"), current_node=7),
        entry(node("u1", None, "user", "x"), current_node="nowhere"),
        entry(node("u1", "nowhere", "user", "x")),
        entry(node("u1", None, "user", "x"), create_time="long ago", update_time=None),
        entry(node("u1", None, "user", "x"), node("a1", "u1", "assistant", content=None)),
        entry(node("u1", None, "user", "x"), node("a1", "u1", "assistant", author="me")),
        entry(node("u1", None, "user", "x"), node("a1", "u1", ["assistant"], "y")),
    ],
)
def test_odd_entries_give_what_there_is(shelf: Library, odd: Any) -> None:
    assert load(shelf, [odd]).num_imported == 1
    [imported] = shelf.store.entries("ann")
    assert shelf.shown("ann", imported.conversation_id) == ["x"]
