"""Whether a conversation and a reply fit the model's context, and what to leave out if not.

Arithmetic and decisions alone; whoever calls counts tokens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from engine import ModelInfo
from ui.chat.conversation import ChatError, Message, Role

_MIN_REPLY_TOKENS = 64
_MIN_REPLY_SHARE = 16  # of the context, one part in so many
_MAX_SUMMARY_TOKENS = 512
_SUMMARY_SHARE = 8

# A cut changes the beginning of the prompt, so everything after it is computed again. Leaving out
# just enough would do that in every turn from then on; down to this share, some turns pass first.
_FILL_AFTER_CUT = 0.6


class OnFull(StrEnum):
    """What a person chose where the context is full."""

    DROP = "drop"  # leave the oldest turns out
    SUMMARISE = "summarise"  # put a summary in their place


class ContextUse(NamedTuple):
    """Tokens: what a prompt takes, and what it and its reply may have together."""

    used: int
    max: int


class ContextFullError(ChatError):
    """Conversation and reply do not fit. `choices`: what would help; empty: nothing but less text.

    `num_left_out`: how many messages either choice would leave out.
    """

    code = "context_full"

    def __init__(
        self,
        *,
        used: int,
        max_tokens: int,
        choices: Sequence[OnFull] = (),
        num_left_out: int = 0,
        reason: str = "",
    ) -> None:
        super().__init__(reason or _sentence(used, max_tokens, choices))
        self.used = used
        self.max = max_tokens
        self.choices = tuple(choices)
        self.num_left_out = num_left_out

    @property
    def details(self) -> dict[str, Any]:
        """The error's fields beside code and message, see docs/protocol.md."""
        return {
            "used": self.used,
            "max": self.max,
            "choices": [choice.value for choice in self.choices],
            "num_left_out": self.num_left_out,
        }


def _sentence(used: int, max_tokens: int, choices: Sequence[OnFull]) -> str:
    what = (
        f"The conversation has {used:,} tokens, and the model's context of {max_tokens:,} has no "
        "room left for a reply: "
    )
    if choices:
        return what + "leave out its oldest turns, or have them summarised."
    return what + "shorten this message or the system prompt, or start a new conversation."


def context_size(info: ModelInfo) -> int:
    """Tokens that prompt and reply may have together."""
    return min(info.max_model_len, info.num_blocks * info.block_size)


def min_reply_tokens(max_tokens: int, context: int) -> int:
    """The room that a reply must find, however long a one was asked for."""
    return min(max_tokens, max(_MIN_REPLY_TOKENS, context // _MIN_REPLY_SHARE))


def reply_tokens(num_prompt_tokens: int, max_tokens: int, context: int) -> int | None:
    """How long the reply may be, at most `max_tokens`. None: the prompt leaves too little room."""
    room = context - num_prompt_tokens
    return min(max_tokens, room) if room >= min_reply_tokens(max_tokens, context) else None


def max_prompt_tokens(max_tokens: int, context: int) -> int:
    """The longest prompt that leaves a reply its room."""
    return context - min_reply_tokens(max_tokens, context)


def prompt_tokens_after_cut(max_tokens: int, context: int) -> int:
    """What a cut should leave of the prompt, at most."""
    return min(int(context * _FILL_AFTER_CUT), max_prompt_tokens(max_tokens, context))


def max_summary_tokens(context: int) -> int:
    return min(_MAX_SUMMARY_TOKENS, context // _SUMMARY_SHARE)


def cut_points(messages: Sequence[Message]) -> list[int]:
    """Where the sent part may begin instead: at each later question, the last one included."""
    return [index for index, message in enumerate(messages) if index and message.role is Role.USER]


async def first_cut_within(
    points: Sequence[int], limit: int, count: Callable[[int], Awaitable[int]]
) -> int | None:
    """The earliest of the points from which on at most `limit` tokens are sent; None: not one.

    `count` tells a point's tokens, fewer with each later one. It is called about log2 times.
    """
    if not points or await count(points[-1]) > limit:
        return None
    low, high = 0, len(points) - 1  # the answer lies in [low, high], and high fits
    while low < high:
        middle = (low + high) // 2
        if await count(points[middle]) <= limit:
            high = middle
        else:
            low = middle + 1
    return points[high]
