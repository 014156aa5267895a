"""A store on a real database, and short ways to fill it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine import FinishReason
from tests.fake_runner import FakeClock
from ui.chat.conversation import Asked, MessageState, ReplyFacts
from ui.chat.settings import ChatSettings
from ui.chat.storage.database import Database, open_database
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.store import ConversationStore

DAY_S = 24 * 3600.0
FACTS = ReplyFacts(finish_reason=FinishReason.STOP, num_output_tokens=3, ttft_s=0.25)


class Library:
    """A store of which a test says what is asked and answered; ids are q1, a1, q2, ..."""

    def __init__(self, database: Database, limits: ConversationLimits | None = None) -> None:
        self.database = database
        self.clock = FakeClock()
        self.clock.now_s = 1_000_000.0
        self.store = ConversationStore(database, limits, self.clock)
        self._numbers = itertools.count(1)

    def ask(self, person: str, text: str, conversation_id: str | None = None, **more: Any) -> Asked:
        number = next(self._numbers)
        self.clock.now_s += 1.0
        wanted: dict[str, Any] = {
            "question_id": f"q{number}",
            "answer_id": f"a{number}",
            "settings": ChatSettings(),
            **more,
        }
        return self.store.ask(person, conversation_id=conversation_id, text=text, **wanted)

    def finish(self, answer_id: str, text: str, **more: Any) -> None:
        wanted: dict[str, Any] = {"state": MessageState.DONE, "facts": FACTS, **more}
        self.store.finish_answer(answer_id, text=text, **wanted)

    def exchange(
        self,
        person: str,
        question: str,
        answer: str,
        conversation_id: str | None = None,
        **more: Any,
    ) -> Asked:
        """A question with its answer."""
        asked = self.ask(person, question, conversation_id, **more)
        self.finish(asked.answer_id, answer)
        return asked

    def again(self, person: str, message_id: str, answer: str) -> Asked:
        answer_id = f"a{next(self._numbers)}"
        self.clock.now_s += 1.0
        asked = self.store.answer_again(
            person, message_id, answer_id=answer_id, settings=ChatSettings()
        )
        self.finish(answer_id, answer)
        return asked

    def shown(self, person: str, conversation_id: str) -> list[str]:
        """The texts of the path."""
        messages = self.store.conversation(person, conversation_id).messages
        return [message.text for message in messages]


@contextlib.contextmanager
def library(data_dir: Path, limits: ConversationLimits | None = None) -> Iterator[Library]:
    database = open_database(data_dir)
    try:
        yield Library(database, limits)
    finally:
        database.close()
