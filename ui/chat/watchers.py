"""The open pages of everybody: who looks at what, and who is to be told of a change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ui.chat.watch import Watch


class Watchers:
    def __init__(self) -> None:
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)

    def add(self, watch: Watch) -> None:
        self._watches[watch.person].add(watch)

    def remove(self, watch: Watch) -> None:
        watches = self._watches[watch.person]
        watches.discard(watch)
        if not watches:
            del self._watches[watch.person]

    def is_here(self, person: str) -> bool:
        """Whether any page of theirs is open: who reads another chat still waits for an answer."""
        return person in self._watches

    def entry_changed(self, person: str, conversation_id: str) -> None:
        """Its line in the list: title, time, place, whether something is being written."""
        for watch in self._of(person):
            watch.entry_changed(conversation_id)

    def conversation_changed(self, person: str, conversation_id: str) -> None:
        """What is shown of it, and its line in the list."""
        for watch in self._of(person):
            watch.entry_changed(conversation_id)
            watch.conversation_changed(conversation_id)

    def answer_grew(self, person: str, conversation_id: str) -> None:
        for watch in self._of(person):
            watch.answer_grew(conversation_id)

    def entries_changed(self, person: str) -> None:
        """Many lines at once, after an import for example."""
        for watch in self._of(person):
            watch.entries_changed()

    def engine_changed(self) -> None:
        for watch in self._all():
            watch.engine_changed()

    def close(self) -> None:
        for watch in self._all():
            watch.close()

    def _of(self, person: str) -> Iterable[Watch]:
        return tuple(self._watches.get(person, ()))

    def _all(self) -> Iterable[Watch]:
        return [watch for watches in self._watches.values() for watch in watches]
