"""From the path of a conversation to the messages that the model gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine import ChatMessage
from ui.chat.conversation import Message, Role
from ui.chat.settings import ChatSettings

_SUMMARY = "Summary of the conversation so far: "
_ACKNOWLEDGEMENT = "Understood. Let us go on from there."


class SentPart(NamedTuple):
    """What of a path is sent word for word, after its newest cut."""

    messages: tuple[Message, ...]
    num_left_out: int
    summary: str  # of those left out; empty: there is none


def sent_part(path: Sequence[Message]) -> SentPart:
    """A path without what its newest cut leaves out.

    A cut whose first message is not on the path (it was deleted) leaves nothing out: if it all has
    no room, the person is asked again.
    """
    cut = next((message.cut for message in reversed(path) if message.cut is not None), None)
    for index, message in enumerate(path):
        if cut is not None and message.message_id == cut.first_message_id:
            return SentPart(tuple(path[index:]), index, cut.summary)
    return SentPart(tuple(path), 0, "")


def prompt_messages(sent: SentPart, settings: ChatSettings) -> tuple[ChatMessage, ...]:
    """System prompt, summary, messages.

    What stopped or failed in mid-answer is kept, an answer without a word is left out, and messages
    of one role in a row become one: templates want the roles to alternate.
    """
    prompt = _beginning(settings.system_prompt, sent.summary)
    for message in sent.messages:
        if not message.text:
            continue
        role = message.role.value
        if prompt and prompt[-1].role == role:
            prompt[-1] = ChatMessage(role, f"{prompt[-1].content}\n\n{message.text}")
        else:
            prompt.append(ChatMessage(role, message.text))
    return tuple(prompt)


def _beginning(system_prompt: str, summary: str) -> list[ChatMessage]:
    """The summary is a part of the system prompt, or, without one, a turn of its own.

    A system message of our own would replace a template's default one, and some templates take
    none.
    """
    has_system_prompt = bool(system_prompt.strip())
    if has_system_prompt and summary:
        return [ChatMessage("system", f"{system_prompt}\n\n{_SUMMARY}{summary}")]
    if has_system_prompt:
        return [ChatMessage("system", system_prompt)]
    if summary:
        return [
            ChatMessage(Role.USER.value, _SUMMARY + summary),
            ChatMessage(Role.ASSISTANT.value, _ACKNOWLEDGEMENT),
        ]
    return []
