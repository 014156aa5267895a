"""The shape of a conversation: which messages are shown, and what is a variant of what.

Deleted messages are hidden, not gone: what hangs below one counts as hanging below the nearest
shown message above it. So its variants are reached by the arrows like any others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class TreeNode(NamedTuple):
    key: int  # grows with age: a later message has a larger one
    parent_key: int | None
    active_child_key: int | None
    is_deleted: bool
    message_id: str


class Step(NamedTuple):
    """The path goes from `parent_key` (None: the beginning) to `child_key`."""

    parent_key: int | None
    child_key: int


class MessageTree:
    """A snapshot; changes go to the database, and the next snapshot has them."""

    def __init__(self, nodes: Iterable[TreeNode], active_root_key: int | None) -> None:
        self._nodes = {node.key: node for node in nodes}
        self._active_root_key = active_root_key
        self._children: dict[int | None, list[int]] = {}
        for key in sorted(self._nodes):
            self._children.setdefault(self._nodes[key].parent_key, []).append(key)

    def __len__(self) -> int:
        return len(self._nodes)

    def message_id(self, key: int) -> str:
        return self._nodes[key].message_id

    def is_deleted(self, key: int) -> bool:
        return self._nodes[key].is_deleted

    def shown_path(self) -> list[int]:
        """What a person sees, from the first message to the last."""
        path: list[int] = []
        key = self.next_shown(None)
        while key is not None:
            path.append(key)
            key = self.next_shown(key)
        return path

    def end(self) -> int | None:
        """What the next message hangs below: the path's last message, or hidden ones after it."""
        path = self.shown_path()
        end = path[-1] if path else None
        child = self._active_child(end)
        while child is not None:
            end = child
            child = self._active_child(end)
        return end

    def shown_parent(self, key: int) -> int | None:
        """The nearest shown message above."""
        parent = self._nodes[key].parent_key
        while parent is not None and self._nodes[parent].is_deleted:
            parent = self._nodes[parent].parent_key
        return parent

    def next_shown(self, key: int | None) -> int | None:
        """Where the path goes from here (None: its beginning).

        The newest of the messages below where the stored way ends in hidden ones.
        """
        child = self._active_child(key)
        while child is not None and self._nodes[child].is_deleted:
            child = self._active_child(child)
        if child is None:
            child = max(self._shown_children(key), default=None)
        return child

    def line_to(self, key: int) -> list[int]:
        """Every message from the root to this one, hidden ones too."""
        line = [key]
        while (parent := self._nodes[line[-1]].parent_key) is not None:
            line.append(parent)
        line.reverse()
        return line

    def variants(self, key: int) -> list[int]:
        """The shown messages in this one's place, itself among them, oldest first."""
        return self._shown_children(self.shown_parent(key))

    def descendants(self, key: int) -> list[int]:
        """Everything below, hidden ones too."""
        found: list[int] = []
        waiting = list(self._children.get(key, ()))
        while waiting:
            found.append(waiting.pop())
            waiting += self._children.get(found[-1], ())
        return found

    def steps_to(self, key: int) -> list[Step]:
        """What has to change for the path to lead through this message."""
        line = self.line_to(key)
        steps = [Step(*pair) for pair in zip([None, *line], line, strict=False)]
        return [step for step in steps if self._active_child(step.parent_key) != step.child_key]

    def steps_after_deleting(self, key: int) -> list[Step]:
        """The path goes to the nearest variant where nothing shown is below the deleted one."""
        parent = self.shown_parent(key)
        if self._shown_children(key) or self.next_shown(parent) != key:
            return []
        variants = self._shown_children(parent)
        place = variants.index(key)
        others = variants[:place][-1:] or variants[place + 1 :]
        if not others:
            return []
        line = self.line_to(others[0])
        start = 0 if parent is None else line.index(parent) + 1
        return [
            Step(parent if i == start else line[i - 1], line[i]) for i in range(start, len(line))
        ]

    def _active_child(self, key: int | None) -> int | None:
        child = self._active_root_key if key is None else self._nodes[key].active_child_key
        is_child = child in self._nodes and self._nodes[child].parent_key == key
        return child if is_child else None

    def _shown_children(self, key: int | None) -> list[int]:
        found: list[int] = []
        waiting = list(self._children.get(key, ()))
        while waiting:
            child = waiting.pop()
            if self._nodes[child].is_deleted:
                waiting += self._children.get(child, ())
            else:
                found.append(child)
        return sorted(found)
