"""What the benchmarks say: chats of a team, with texts that every tokenizer splits about alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

# Common words that are one token, with their leading space, in nearly every tokenizer.
_WORDS: list[str] = """
    the of and to in is that for it as was with be by on not he his but at are this have from or
    had an they which one you were all her she there would their we him been has when who will no
    more if out so up said what its about than into them can only other time new some could these
    two may first then do any like my now over such our man me even most made after also did many
    off before must well back through years much where your way down should because long each just
    state people those too how little good world make very year still see own work men day get
    here old life both between being under three never know same last another while us might great
    go come since against right came take used himself few house use place during high without
""".split()


@dataclass(frozen=True, slots=True)
class ChatWorkload:
    """`users` people, each holding one chat of `turns` turns below one system prompt.

    Lengths are in words, close to tokens. The same seed gives the same texts everywhere.
    """

    users: int = 16
    turns: int = 4
    system_words: int = 122
    message_words: int = 82
    max_tokens: int = 48
    seed: int = 7

    @property
    def num_requests(self) -> int:
        return self.users * self.turns

    @property
    def system_prompt(self) -> str:
        return "You are a helpful assistant. " + _words(random.Random(self.seed), self.system_words)

    def messages_of(self, user: int) -> Iterator[str]:
        """The user's messages, turn by turn."""
        generator = random.Random(f"{self.seed}/{user}")
        for _ in range(self.turns):
            yield _words(generator, self.message_words) + "?"


def _words(generator: random.Random, count: int) -> str:
    return " ".join(generator.choice(_WORDS) for _ in range(count))
