"""Export and import of Hearth's own JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.storage_factories import FACTS, Library
from ui.chat.conversation import ContextCut, MessageState, Role
from ui.chat.exchange.export import all_conversations, export_json
from ui.chat.exchange.importing import ImportResult, import_file
from ui.chat.settings import ChatSettings
from ui.chat.storage.whole import WholeConversation

NASTY = '## User\n<script>alert(1)</script> "quotes" \\ \u2028 😀 $5 and $6'


def filled(shelf: Library) -> str:
    """A conversation with branches, settings, a pin, figures and a cut; and one more."""
    settings = ChatSettings(system_prompt=NASTY, temperature=0.1, seed=5)
    first = shelf.exchange("ann", "one", NASTY, settings=settings)
    cut = ContextCut("q2", 2, "They said one.")
    shelf.exchange("ann", "two", "2", first.conversation_id, settings=settings, cut=cut)
    shelf.again("ann", "a1", "1!")
    shelf.exchange("ann", "two!", "2!", first.conversation_id, settings=settings)
    shelf.store.select("ann", "a2")
    shelf.store.set_pinned("ann", first.conversation_id, True)
    shelf.store.rename("ann", first.conversation_id, 'Numbers "1" & 2')
    other = shelf.exchange("ann", "other", "text")
    shelf.store.set_archived("ann", other.conversation_id, True)
    return first.conversation_id


def exported(shelf: Library, person: str = "ann") -> bytes:
    return b"".join(export_json(all_conversations(shelf.store, person)))


def wholes(shelf: Library, person: str) -> list[WholeConversation]:
    return list(all_conversations(shelf.store, person))


def document(**changes: Any) -> dict[str, Any]:
    """A file with one conversation of a question and its answer."""
    messages = [
        {"message_id": "m1", "parent_id": None, "role": "user", "text": "Hi", "created_s": 5.0},
        {"message_id": "m2", "parent_id": "m1", "role": "assistant", "text": "Hello"},
    ]
    conversation = {"conversation_id": "c1", "title": "T", "messages": messages, **changes}
    return {"format": "hearth-conversations", "version": 1, "conversations": [conversation]}


def load(shelf: Library, content: Any) -> ImportResult:
    return import_file("ann", json.dumps(content).encode(), shelf.store)


def test_all_of_it_comes_back_after_a_loss(shelf: Library) -> None:
    conversation_id = filled(shelf)
    before, shown = wholes(shelf, "ann"), shelf.shown("ann", conversation_id)
    file = exported(shelf)
    with shelf.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM conversations")
    assert import_file("ann", file, shelf.store) == ImportResult(2, 0, ())
    assert wholes(shelf, "ann") == before
    assert shelf.shown("ann", conversation_id) == shown == ["one", NASTY, "two", "2"]
    entry = shelf.store.entry("ann", conversation_id)
    assert (entry.title, entry.is_pinned) == ('Numbers "1" & 2', True)
    assert shelf.store.message("ann", "a1").facts == FACTS
    assert shelf.store.message("ann", "q2").cut == ContextCut("q2", 2, "They said one.")
    assert [hit.message_id for hit in shelf.store.search("ann", "alert")] == ["a1"]


def test_a_second_import_adds_nothing(shelf: Library) -> None:
    filled(shelf)
    file, before = exported(shelf), wholes(shelf, "ann")
    assert import_file("ann", file, shelf.store) == ImportResult(0, 2, ())
    assert import_file("bob", file, shelf.store) == ImportResult(2, 0, ())
    assert import_file("bob", file, shelf.store) == ImportResult(0, 2, ())
    assert wholes(shelf, "ann") == before


def test_br_59_the_ids_of_another_person_become_others(shelf: Library) -> None:
    conversation_id = filled(shelf)
    before = wholes(shelf, "ann")
    import_file("bob", exported(shelf), shelf.store)
    mine = {whole.conversation_id for whole in before}
    theirs = {whole.conversation_id for whole in wholes(shelf, "bob")}
    assert mine.isdisjoint(theirs)
    assert [whole.title for whole in wholes(shelf, "bob")] == [whole.title for whole in before]
    pinned = next(whole for whole in wholes(shelf, "bob") if whole.is_pinned)
    cut = next(message.cut for message in pinned.messages if message.cut is not None)
    assert cut.first_message_id in {message.message_id for message in pinned.messages}
    shelf.store.delete_conversation("bob", pinned.conversation_id)
    assert shelf.shown("ann", conversation_id) == ["one", NASTY, "two", "2"]


def test_an_import_brings_a_deleted_conversation_back(shelf: Library) -> None:
    conversation_id = filled(shelf)
    file = exported(shelf)
    shelf.store.delete_conversation("ann", conversation_id)
    assert import_file("ann", file, shelf.store) == ImportResult(1, 1, ())
    assert len(shelf.shown("ann", conversation_id)) == 4


def test_what_was_said_since_the_export_stays(shelf: Library) -> None:
    conversation_id = filled(shelf)
    file = exported(shelf)
    shelf.exchange("ann", "three", "3", conversation_id)
    import_file("ann", file, shelf.store)
    assert shelf.shown("ann", conversation_id)[-2:] == ["three", "3"]


def test_deleted_messages_are_not_exported(shelf: Library) -> None:
    conversation_id = filled(shelf)
    shelf.store.delete_message("ann", "a1")
    file = exported(shelf)
    assert b"alert" not in file.replace(json.dumps(NASTY)[1:-1].encode(), b"", 1)
    import_file("bob", file, shelf.store)
    pinned = shelf.store.entries("bob")[0].conversation_id
    assert shelf.shown("bob", pinned) == shelf.shown("ann", conversation_id) == ["one", "two", "2"]


def test_an_answer_in_the_making_comes_back_as_interrupted(shelf: Library) -> None:
    asked = shelf.ask("ann", "one")
    whole = shelf.store.whole_conversation("ann", asked.conversation_id)
    import_file("bob", b"".join(export_json([whole])), shelf.store)
    [copy] = wholes(shelf, "bob")
    assert copy.messages[1].state is MessageState.INTERRUPTED
    assert shelf.store.interrupt_unfinished() == 1


def test_an_export_is_written_bit_by_bit(shelf: Library) -> None:
    filled(shelf)
    taken: list[str] = []

    def noted() -> Iterator[WholeConversation]:
        for whole in all_conversations(shelf.store, "ann"):
            taken.append(whole.title)
            yield whole

    parts = export_json(noted())
    next(parts)
    assert taken == []
    next(parts)
    assert len(taken) == 1
    assert json.loads(exported(shelf))["version"] == 1
    assert json.loads(b"".join(export_json([])))["conversations"] == []


def test_a_small_file_is_enough(shelf: Library) -> None:
    assert load(shelf, document()) == ImportResult(1, 0, ())
    conversation = shelf.store.conversation("ann", "c1")
    assert [(m.role, m.text) for m in conversation.messages] == [
        (Role.USER, "Hi"),
        (Role.ASSISTANT, "Hello"),
    ]
    assert conversation.settings == ChatSettings()
    assert conversation.updated_s == shelf.clock.now_s


def test_children_may_stand_before_their_parents(shelf: Library) -> None:
    turned = document()
    turned["conversations"][0]["messages"].reverse()
    assert load(shelf, turned).num_imported == 1
    assert shelf.shown("ann", "c1") == ["Hi", "Hello"]


MESSAGE = {"message_id": "m1", "parent_id": None, "role": "user", "text": "Hi"}
BROKEN: list[dict[str, Any]] = [
    {"messages": None},
    {"messages": [None]},
    {"messages": {"m1": MESSAGE}},
    {"messages": [{**MESSAGE, "text": None}]},
    {"messages": [{**MESSAGE, "text": ["Hi"]}]},
    {"messages": [{**MESSAGE, "role": "system"}]},
    {"messages": [{**MESSAGE, "role": None}]},
    {"messages": [{**MESSAGE, "state": "dreaming"}]},
    {"messages": [{**MESSAGE, "message_id": 7}]},
    {"messages": [{**MESSAGE, "parent_id": "nowhere"}]},
    {"messages": [{**MESSAGE, "parent_id": "m1"}]},
    {"messages": [MESSAGE, MESSAGE]},
    {
        "messages": [
            {**MESSAGE, "parent_id": "m2"},
            {**MESSAGE, "message_id": "m2", "parent_id": "m1"},
        ]
    },
    {"messages": [{**MESSAGE, "text": "x" * 200_001}]},
    {"messages": [{**MESSAGE, "message_id": f"m{number}"} for number in range(5001)]},
    {"messages": [{**MESSAGE, "cut": {"first_message_id": "m1", "num_left_out": "many"}}]},
    {"conversation_id": None},
    {"title": 5},
    {"settings": []},
    {"settings": {"temperature": "hot"}},
    {"settings": {"temperature": 99}},
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: str(broken)[:40])
def test_what_is_broken_is_told_of_and_the_rest_imported(
    shelf: Library, broken: dict[str, Any]
) -> None:
    file = document(**broken)
    file["conversations"].append(document(conversation_id="good")["conversations"][0])
    result = load(shelf, file)
    assert (result.num_imported, result.num_known, len(result.problems)) == (1, 0, 1)
    assert result.problems[0].startswith("Conversation 1")
    assert [entry.conversation_id for entry in shelf.store.entries("ann")] == ["good"]


def test_odd_values_that_do_no_harm_are_put_right(shelf: Library) -> None:
    odd = document(
        conversation_id="an id with spaces/and slashes",
        title=" two\nlines \ud800",
        created_s=-5,
        updated_s=10**400,
        is_pinned="yes",
        active_root_id="nowhere",
        settings={"temperature": 1, "unknown": 1},
        unknown=[1],
    )
    message = odd["conversations"][0]["messages"][1]
    message.update(
        active_child_id="m1",
        facts={
            "finish_reason": "stop",
            "ttft_s": "soon",
            "num_output_tokens": 3,
            "x": 1,
            "queued_s": 10**400,
        },
        created_s="yesterday",
        text="nul \0 half \ud83d",
    )
    assert load(shelf, odd).problems == ()
    [entry] = shelf.store.entries("ann")
    assert (entry.title, entry.is_pinned) == ("two lines \ufffd", False)
    assert shelf.shown("ann", entry.conversation_id) == ["Hi", "nul \ufffd half \ufffd"]
    facts = shelf.store.conversation("ann", entry.conversation_id).messages[1].facts
    assert facts is not None
    assert (facts.ttft_s, facts.num_output_tokens, facts.queued_s) == (None, 3, None)
    assert load(shelf, odd).num_known == 1


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_files_of_other_versions_are_refused(shelf: Library, version: object) -> None:
    result = load(shelf, {**document(), "version": version})
    assert result.num_imported == 0
    assert "newer Hearth" in result.problems[0]
