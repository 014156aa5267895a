"""Paths of conversations for tests."""

from __future__ import annotations

from ui.chat.conversation import ContextCut, Message, Role


def path_of(*texts: str, cuts: dict[int, ContextCut] | None = None) -> tuple[Message, ...]:
    """Questions and answers in turn; message n is called m<n>."""
    roles = (Role.USER, Role.ASSISTANT)
    return tuple(
        Message(
            message_id=f"m{index}",
            parent_id=None,
            role=roles[index % 2],
            text=text,
            cut=(cuts or {}).get(index),
        )
        for index, text in enumerate(texts)
    )
