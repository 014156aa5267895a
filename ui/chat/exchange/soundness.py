"""Whether a conversation from outside is a tree that can be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ui.chat.characters import first_words, one_line
from ui.chat.exchange.fields import BrokenEntryError
from ui.chat.storage.limits import ConversationLimits
from ui.chat.storage.whole import WholeConversation, WholeMessage

_TITLE_CHARS = 48


def sound(
    conversation: WholeConversation, limits: ConversationLimits, now_s: float
) -> WholeConversation:
    """The same with each parent before its children, pointers that hold, a title and times.

    Raises:
        BrokenEntryError: its messages are no tree.
        LimitError: it is too large.
    """
    limits.check_num_messages(len(conversation.messages))
    for message in conversation.messages:
        limits.check_text(message.text)
        if message.cut is not None:
            limits.check_text(message.cut.summary)
    messages = _parents_first(conversation.messages)
    parent_of = {message.message_id: message.parent_id for message in messages}
    root_id = conversation.active_root_id
    created_s = conversation.created_s or now_s
    return replace(
        conversation,
        title=_title(conversation, messages, limits),
        created_s=created_s,
        updated_s=conversation.updated_s or created_s,
        active_root_id=root_id if root_id in parent_of and parent_of[root_id] is None else None,
        messages=tuple(_checked(message, parent_of, created_s) for message in messages),
    )


def _checked(
    message: WholeMessage, parent_of: dict[str, str | None], usual_s: float
) -> WholeMessage:
    child_id, cut = message.active_child_id, message.cut
    is_child = child_id in parent_of and parent_of[child_id] == message.message_id
    return replace(
        message,
        created_s=message.created_s or usual_s,
        active_child_id=child_id if is_child else None,
        cut=cut if cut is not None and cut.first_message_id in parent_of else None,
    )


def _parents_first(messages: Sequence[WholeMessage]) -> list[WholeMessage]:
    """Otherwise in the order they had, which is that of their age."""
    if len({message.message_id for message in messages}) < len(messages):
        raise BrokenEntryError("two of its messages have the same id.")
    children: dict[str | None, list[WholeMessage]] = {}
    for message in messages:
        children.setdefault(message.parent_id, []).append(message)
    place = {message.message_id: index for index, message in enumerate(messages)}
    if all(_stands_after_parent(message, place) for message in messages):
        return list(messages)
    found: list[WholeMessage] = []
    waiting = list(reversed(children.get(None, ())))
    while waiting:
        found.append(waiting.pop())
        waiting += reversed(children.get(found[-1].message_id, ()))
    if len(found) < len(messages):
        raise BrokenEntryError("some of its messages hang below none of the others.")
    return found


def _stands_after_parent(message: WholeMessage, place: dict[str, int]) -> bool:
    parent_id = message.parent_id
    return parent_id is None or place.get(parent_id, len(place)) < place[message.message_id]


def _title(
    conversation: WholeConversation, messages: Sequence[WholeMessage], limits: ConversationLimits
) -> str:
    first_text = messages[0].text if messages else ""
    title = one_line(conversation.title)[: limits.max_title_chars]
    return title or first_words(first_text, _TITLE_CHARS) or "Imported"
