"""Thousands of random operations beside a plain model of the tree: nothing is ever lost.

The model keeps real lists of children and walks them by recursion; it shares nothing with the
program's own tree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.storage_factories import Library
from ui.chat.conversation import ChatError, Conversation, MessageState, Role
from ui.chat.exchange.export import export_json
from ui.chat.exchange.importing import import_file
from ui.chat.settings import ChatSettings


@dataclass(eq=False)
class Node:
    """A message as the model has it; the first of all stands for the conversation."""

    message_id: str
    role: Role | None
    text: str = ""
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    chosen: Node | None = None
    is_deleted: bool = False

    def shown_children(self) -> list[Node]:
        shown: list[Node] = []
        for child in self.children:
            shown += child.shown_children() if child.is_deleted else [child]
        return shown

    def shown_parent(self) -> Node:
        assert self.parent is not None
        return self.parent.shown_parent() if self.parent.is_deleted else self.parent

    def leads_to(self) -> Node | None:
        """The shown message that the choices lead to."""
        if self.chosen is None:
            return None
        return self.chosen.leads_to() if self.chosen.is_deleted else self.chosen

    def next(self) -> Node | None:
        shown = sorted(self.shown_children(), key=age)
        return self.leads_to() or (shown[-1] if shown else None)

    def choose(self) -> None:
        node = self
        while node.parent is not None:
            node.parent.chosen = node
            node = node.parent


def age(node: Node) -> int:
    return int(node.message_id[1:])


class Model:
    def __init__(self) -> None:
        self.root = Node("", None)
        self.nodes: dict[str, Node] = {}

    def add(self, message_id: str, role: Role, parent: Node, text: str) -> Node:
        node = Node(message_id, role, text, parent)
        parent.children.append(node)
        self.nodes[message_id] = node
        node.choose()
        return node

    def path(self) -> list[Node]:
        path: list[Node] = []
        node = self.root.next()
        while node is not None:
            path.append(node)
            node = node.next()
        return path

    def end(self) -> Node:
        path = self.path()
        node = path[-1] if path else self.root
        while node.chosen is not None:
            node = node.chosen
        return node

    def delete(self, node: Node) -> None:
        parent = node.shown_parent()
        is_chosen, variants = parent.next() is node, sorted(parent.shown_children(), key=age)
        node.is_deleted = True
        place = variants.index(node)
        nearest = [*reversed(variants[:place]), *variants[place + 1 :]]
        if is_chosen and not node.shown_children() and nearest:
            chosen = nearest[0]
            while chosen is not parent:
                assert chosen.parent is not None
                chosen.parent.chosen = chosen
                chosen = chosen.parent

    def shown(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.is_deleted]


class Play:
    """The same operation on the store and on the model, whatever dice say."""

    def __init__(self, shelf: Library, seed: int) -> None:
        self.random = random.Random(seed)
        self.shelf, self.store = shelf, shelf.store
        self.model = Model()
        first = shelf.store.ask(
            "ann",
            conversation_id=None,
            question_id="m1",
            answer_id="m2",
            text="text of m1",
            settings=ChatSettings(),
        )
        self.conversation_id = first.conversation_id
        self.num = 2
        question = self.model.add("m1", Role.USER, self.model.root, "text of m1")
        self._written("m2", question)
        self.operations: list[Callable[[], None]] = [
            *(self.ask, self.ask_below, self.again, self.again, self.edit, self.resume),
            *(self.select, self.select, self.delete, self.delete, self.restore, self.restore),
        ]

    def pick(self, nodes: list[Node]) -> Node:
        """Mostly one near the end of what is shown, where the cases are."""
        near = [node for node in self.model.path()[-4:] if node in nodes]
        return self.random.choice(near if near and self.random.random() < 0.6 else nodes)

    def new_id(self) -> str:
        self.num += 1
        return f"m{self.num}"

    def _written(self, answer_id: str, question: Node) -> None:
        text = f"text of {answer_id}"
        state = self.random.choice([MessageState.DONE, MessageState.STOPPED, MessageState.FAILED])
        self.store.finish_answer(answer_id, text=text, state=state, facts=None)
        self.model.add(answer_id, Role.ASSISTANT, question, text)

    def _ask(self, parent: Node, **more: str | None) -> None:
        question_id, answer_id = self.new_id(), self.new_id()
        text = f"text of {question_id}"
        self.store.ask(
            "ann",
            conversation_id=self.conversation_id,
            question_id=question_id,
            answer_id=answer_id,
            text=text,
            settings=ChatSettings(),
            **more,
        )
        self._written(answer_id, self.model.add(question_id, Role.USER, parent, text))

    def ask(self) -> None:
        self._ask(self.model.end())

    def ask_below(self) -> None:
        parent = self.random.choice([self.model.root, *self.model.nodes.values()])
        self._ask(parent, parent_id=parent.message_id or None)

    def again(self) -> None:
        node = self.pick(self.model.shown() or [self.model.root])
        question = node if node.role is Role.USER else node.parent
        if question is None or question.role is not Role.USER or question.is_deleted:
            return
        answer_id = self.new_id()
        self.store.answer_again(
            "ann", node.message_id, answer_id=answer_id, settings=ChatSettings()
        )
        self._written(answer_id, question)

    def _shown_answer(self) -> Node | None:
        answers = [node for node in self.model.shown() if node.role is Role.ASSISTANT]
        return self.pick(answers) if answers else None

    def edit(self) -> None:
        node = self._shown_answer()
        if node is not None and node.parent is not None:
            new_id = self.new_id()
            self.store.edit_answer("ann", node.message_id, f"text of {new_id}", new_id)
            self.model.add(new_id, Role.ASSISTANT, node.parent, f"text of {new_id}")

    def resume(self) -> None:
        node = self._shown_answer()
        if node is None or node.parent is None or node.parent.is_deleted:
            return
        self.store.resume_answer("ann", node.message_id, ChatSettings())
        node.text += " more"
        self.store.finish_answer(
            node.message_id, text=node.text, state=MessageState.DONE, facts=None
        )
        node.choose()

    def select(self) -> None:
        if self.model.shown():
            node = self.pick(self.model.shown())
            self.store.select("ann", node.message_id)
            node.choose()

    def delete(self) -> None:
        if self.model.shown():
            node = self.pick(self.model.shown())
            self.store.delete_message("ann", node.message_id)
            self.model.delete(node)

    def restore(self) -> None:
        deleted = [node for node in self.model.nodes.values() if node.is_deleted]
        if deleted:
            node = self.random.choice(deleted)
            self.store.restore_message("ann", node.message_id)
            node.is_deleted = False
            node.choose()

    def check_path(self) -> None:
        self._compare(self.store.conversation("ann", self.conversation_id))

    def _compare(self, conversation: Conversation) -> None:
        path = self.model.path()
        found = [(message.message_id, message.text) for message in conversation.messages]
        assert found == [(node.message_id, node.text) for node in path]
        for message, node in zip(conversation.messages, path, strict=True):
            variants = sorted(node.shown_parent().shown_children(), key=age)
            assert list(message.variant_ids) == [variant.message_id for variant in variants]

    def check_every_message(self) -> None:
        """Each one is there and within reach of the arrows, whichever path that takes."""
        reachable: set[str] = set()
        waiting = self.model.root.shown_children()
        while waiting:
            node = waiting.pop()
            reachable.add(node.message_id)
            waiting += node.shown_children()
        assert reachable == {node.message_id for node in self.model.shown()}
        for node in self.model.shown():
            assert self.store.message("ann", node.message_id).text == node.text


@pytest.mark.parametrize("seed", range(20))
def test_the_store_agrees_with_a_model_of_the_tree(shelf: Library, seed: int) -> None:
    play = Play(shelf, seed)
    for _ in range(120):
        play.random.choice(play.operations)()
        play.check_path()
    play.check_every_message()
    assert len(play.model.nodes) > 50


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_of_a_random_conversation_shows_the_same(shelf: Library, seed: int) -> None:
    play = Play(shelf, 100 + seed)
    for _ in range(150):
        play.random.choice(play.operations)()
    whole = shelf.store.whole_conversation("ann", play.conversation_id)
    file = b"".join(export_json([whole]))
    assert import_file("bob", file, shelf.store).num_imported == 1
    [entry] = shelf.store.entries("bob")
    copy = shelf.store.conversation("bob", entry.conversation_id)
    mine = shelf.store.conversation("ann", play.conversation_id)
    assert [message.text for message in copy.messages] == [m.text for m in mine.messages]
    assert [m.created_s for m in copy.messages] == [m.created_s for m in mine.messages]
    assert [len(message.variant_ids) for message in copy.messages] == [
        len(message.variant_ids) for message in mine.messages
    ]
    mine_whole = {message.message_id for message in whole.messages}
    copied = shelf.store.whole_conversation("bob", entry.conversation_id)
    assert len(copied.messages) == len(mine_whole)
    assert mine_whole.isdisjoint(message.message_id for message in copied.messages)


def test_what_is_refused_changes_nothing(shelf: Library) -> None:
    asked = shelf.ask("ann", "Hello")
    before = shelf.store.conversation("ann", asked.conversation_id)
    for act in (
        lambda: shelf.ask("ann", "More", asked.conversation_id),
        lambda: shelf.ask("ann", "", None),
        lambda: shelf.ask("ann", "x", asked.conversation_id, parent_id="nowhere"),
        lambda: shelf.store.rename("ann", asked.conversation_id, ""),
    ):
        with pytest.raises(ChatError):
            act()
    assert shelf.store.conversation("ann", asked.conversation_id) == before
    assert len(shelf.store.entries("ann")) == 1
