"""`conversations.json` of a ChatGPT export: a list of trees, of which the said words are taken.

Hidden messages, tools and reasoning stay behind; what hangs below one moves up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ui.chat.characters import whole_characters
from ui.chat.conversation import Role
from ui.chat.exchange.fields import BrokenEntryError, digest_of, plain_identifier, seconds
from ui.chat.storage.whole import WholeConversation, WholeMessage

_KINDS = ("text", "multimodal_text")  # of content that is shown as an answer or a question


def is_chatgpt_entry(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("mapping"), Mapping)


def conversation_from(entry: Any) -> WholeConversation:
    """Raises BrokenEntryError."""
    if not is_chatgpt_entry(entry):
        raise BrokenEntryError("it has no mapping of messages.")
    mapping: Mapping[str, Any] = entry["mapping"]
    if any(not isinstance(node, Mapping) for node in mapping.values()):
        raise BrokenEntryError("Its mapping holds something that is no message.")
    messages = {
        node_id: message
        for node_id, node in mapping.items()
        if (message := _message_from(node_id, node)) is not None
    }
    kept = {
        node_id: replace(message, parent_id=_id_or_none(_kept_above(mapping, messages, node_id)))
        for node_id, message in messages.items()
    }
    active_root_id = _mark_path(mapping, kept, entry.get("current_node"))
    title = entry.get("title")
    return WholeConversation(
        conversation_id=_conversation_id(entry),
        title=title if isinstance(title, str) else "",
        created_s=seconds(entry, "create_time"),
        updated_s=seconds(entry, "update_time"),
        is_archived=entry.get("is_archived") is True,
        active_root_id=active_root_id,
        messages=tuple(sorted(kept.values(), key=lambda message: message.created_s)),
    )


def _conversation_id(entry: Mapping[str, Any]) -> str:
    for name in ("conversation_id", "id"):
        if isinstance(entry.get(name), str) and entry[name]:
            return plain_identifier(entry[name])
    return digest_of("\0".join(sorted(entry["mapping"])))


def _message_from(node_id: str, node: Mapping[str, Any]) -> WholeMessage | None:
    message = node.get("message")
    if not isinstance(message, Mapping):
        return None
    author, content = message.get("author"), message.get("content")
    metadata = message.get("metadata")
    if not isinstance(author, Mapping) or not isinstance(content, Mapping):
        return None
    is_hidden = isinstance(metadata, Mapping) and metadata.get(
        "is_visually_hidden_from_conversation"
    )
    is_said = author.get("role") in list(Role) and content.get("content_type") in _KINDS
    if is_hidden or not is_said:
        return None
    parts = content.get("parts")
    words = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    text = whole_characters("\n\n".join(words))
    if not text.strip():
        return None
    return WholeMessage(
        message_id=plain_identifier(node_id),
        parent_id=None,
        role=Role(str(author["role"])),
        text=text,
        created_s=seconds(message, "create_time"),
    )


def _kept_above(mapping: Mapping[str, Any], kept: Mapping[str, Any], node_id: str) -> str | None:
    """Raises BrokenEntryError: the way up goes round in circles."""
    seen = {node_id}
    above = mapping[node_id].get("parent")
    while isinstance(above, str) and above in mapping and above not in kept:
        if above in seen:
            raise BrokenEntryError("A message is below itself.")
        seen.add(above)
        above = mapping[above].get("parent")
    return above if isinstance(above, str) and above in kept else None


def _mark_path(
    mapping: Mapping[str, Any], kept: dict[str, WholeMessage], current: object
) -> str | None:
    """Note at each message of the shown path which one is next; gives the id of the first."""
    below: str | None = None
    node_id = current if isinstance(current, str) and current in mapping else None
    seen: set[str] = set()
    while node_id is not None and node_id not in seen:
        seen.add(node_id)
        if node_id in kept:
            kept[node_id] = replace(kept[node_id], active_child_id=_id_or_none(below))
            below = node_id
        node_id = _kept_above(mapping, kept, node_id)
    return _id_or_none(below)


def _id_or_none(node_id: str | None) -> str | None:
    return None if node_id is None else plain_identifier(node_id)
