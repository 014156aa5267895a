"""Files that people take their conversations away in."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator

from ui.chat.characters import one_line
from ui.chat.conversation import NotFoundError
from ui.chat.exchange.json_format import export_json
from ui.chat.exchange.markdown_format import export_markdown
from ui.chat.storage.store import ConversationStore
from ui.chat.storage.whole import WholeConversation

__all__ = ["all_conversations", "export_json", "export_markdown", "file_name", "markdown_zip"]

_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]+')
_MAX_NAME_CHARS = 60
_SAME_TIME = (1980, 1, 1, 0, 0, 0)  # a zip of the same conversations is the same file


def all_conversations(store: ConversationStore, person: str) -> Iterator[WholeConversation]:
    """One after another, so that memory holds one; what is deleted meanwhile is left out."""
    for conversation_id in store.conversation_ids(person):
        try:
            yield store.whole_conversation(person, conversation_id)
        except NotFoundError:
            continue


def file_name(conversation: WholeConversation, ending: str) -> str:
    """From the title, without what some system does not allow; the id keeps it apart."""
    title = _UNSAFE.sub(" ", one_line(conversation.title))[:_MAX_NAME_CHARS].strip(" .")
    number = conversation.conversation_id[:8].strip("-_")
    return f"{title or 'Conversation'} ({number}).{ending}"


def markdown_zip(conversations: Iterable[WholeConversation]) -> Iterator[bytes]:
    """A zip of one Markdown file each, in parts as they become ready."""
    parts = _Parts()
    taken: set[str] = set()
    with zipfile.ZipFile(parts, "w", zipfile.ZIP_DEFLATED) as archive:
        for conversation in conversations:
            name = file_name(conversation, "md")
            if name in taken:
                name = f"{conversation.conversation_id}.md"
            taken.add(name)
            entry = zipfile.ZipInfo(name, _SAME_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, export_markdown(conversation).encode())
            yield parts.taken()
    yield parts.taken()


class _Parts(io.RawIOBase):
    """A file that is only written to, and from which the new part is taken now and then."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        return len(part)

    def taken(self) -> bytes:
        joined = b"".join(self._parts)
        self._parts.clear()
        return joined
