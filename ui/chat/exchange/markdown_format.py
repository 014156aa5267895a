"""Conversations as Markdown to read: the shown path, a heading for each message.

Comments mark where messages begin, so that a message may hold headings of its own; a line of a
message that looks like such a comment gets a backslash in front. Files without these comments,
written by hand or by other programs, are read by their headings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ui.chat.characters import first_words, one_line, whole_characters
from ui.chat.conversation import Role
from ui.chat.exchange.fields import BrokenEntryError, digest_of, identifier, seconds
from ui.chat.settings import MAX_SYSTEM_PROMPT_CHARS, ChatSettings
from ui.chat.storage.whole import WholeConversation, WholeMessage

_HEADINGS = {"user": "User", "assistant": "Assistant", "system": "System prompt"}
_MARK = re.compile(r"^<!-- hearth:(user|assistant|system) -->\n(?:#+ [^\n]*\n)?\n?", re.MULTILINE)
_MARK_AT_LINE_START = re.compile(r"^(\\*<!-- hearth:)", re.MULTILINE)
_ESCAPED_MARK = re.compile(r"^\\(\\*<!-- hearth:)", re.MULTILINE)
_ABOUT = re.compile(r"<!-- hearth:conversation (\{.*\}) -->\n")
_TITLE = re.compile(r"\A\s*# ([^\n]*)\n")
_ROLE_OF_HEADING = {
    **dict.fromkeys(("user", "you", "human", "me", "用户"), "user"),
    **dict.fromkeys(
        ("assistant", "chatgpt", "claude", "gpt", "ai", "bot", "model", "hearth", "助手"),
        "assistant",
    ),
    **dict.fromkeys(("system", "system prompt", "系统"), "system"),
}
_MAX_HEADING_CHARS = 60
_MAX_HEAD_CHARS = 4_000  # the comment about the conversation stands before this
_TITLE_CHARS = 48


def export_markdown(conversation: WholeConversation) -> str:
    body = "".join(_section(role, text) for role, text in _sections(conversation))
    about = {
        "conversation_id": conversation.conversation_id,
        "created_s": conversation.created_s,
        "updated_s": conversation.updated_s,
        "digest": digest_of(body),
    }
    title = one_line(conversation.title)
    return f"# {title}\n\n<!-- hearth:conversation {json.dumps(about)} -->\n\n{body}"


def conversation_from_markdown(content: str, usual_title: str) -> WholeConversation:
    """`usual_title` is for files that name none. Raises BrokenEntryError."""
    content = whole_characters(content).removeprefix("\ufeff")
    if "\r" in content:
        content = content.replace("\r\n", "\n")
    about = _ABOUT.search(content, 0, _MAX_HEAD_CHARS)
    if about is not None:
        return _own(content[: about.start()], about, content[about.end() :].removeprefix("\n"))
    title, body = _split_title(content)
    sections = _by_marks(body) or _by_headings(body)
    messages = _messages(sections, digest_of(content))
    if not messages:
        raise BrokenEntryError(
            "No messages were found: each needs a heading, '## User' or '## Assistant'."
        )
    return _conversation(
        digest_of(content), title or first_words(usual_title, _TITLE_CHARS), sections, messages
    )


def _sections(conversation: WholeConversation) -> Iterable[tuple[str, str]]:
    if conversation.settings.system_prompt:
        yield "system", conversation.settings.system_prompt
    by_id = {message.message_id: message for message in conversation.messages}
    message_id = conversation.active_root_id
    while message_id is not None:
        message = by_id[message_id]
        yield message.role.value, message.text
        message_id = message.active_child_id


def _section(role: str, text: str) -> str:
    escaped = _MARK_AT_LINE_START.sub(r"\\\1", text.replace("\r\n", "\n"))
    return f"<!-- hearth:{role} -->\n## {_HEADINGS[role]}\n\n{escaped}\n\n"


def _own(before: str, about: re.Match[str], body: str) -> WholeConversation:
    """What was edited after its export is a new conversation, not the one that is known."""
    title, _ = _split_title(before + "\n")
    try:
        values = json.loads(about.group(1))
        known_id, digest = identifier(values, "conversation_id"), values.get("digest")
    except (ValueError, AttributeError, BrokenEntryError):
        raise BrokenEntryError("The comment below the title was changed: remove it.") from None
    is_unchanged = digest == digest_of(body)
    conversation_id = known_id if is_unchanged else digest_of(known_id + body)
    sections = _by_marks(body)
    messages = _messages(sections, conversation_id)
    return _conversation(
        conversation_id,
        title,
        sections,
        messages,
        created_s=seconds(values, "created_s"),
        updated_s=seconds(values, "updated_s"),
    )


def _split_title(content: str) -> tuple[str, str]:
    found = _TITLE.match(content)
    if found is None or _heading_role(found.group(1)) is not None:
        return "", content
    return one_line(found.group(1)), content[found.end() :]


def _by_marks(body: str) -> list[tuple[str, str]]:
    marks = list(_MARK.finditer(body))
    ends = [*(mark.start() for mark in marks), len(body)][1:]
    return [
        (mark.group(1), _ESCAPED_MARK.sub(r"\1", _without_gap(body[mark.end() : end])))
        for mark, end in zip(marks, ends, strict=True)
    ]


def _without_gap(text: str) -> str:
    """Without the empty line that ends each message; one that an editor removed is not missed."""
    return text.removesuffix("\n").removesuffix("\n")


def _by_headings(body: str) -> list[tuple[str, str]]:
    sections: list[tuple[str, list[str]]] = []
    is_in_code = False
    for line in body.split("\n"):
        is_in_code ^= line.startswith(("```", "~~~"))
        role = None if is_in_code or not line.startswith("#") else _heading_role(line)
        if role is not None:
            sections.append((role, []))
        elif sections:
            sections[-1][1].append(line)
    return [(role, "\n".join(lines).strip()) for role, lines in sections]


def _heading_role(heading: str) -> str | None:
    if len(heading) > _MAX_HEADING_CHARS:
        return None
    return _ROLE_OF_HEADING.get(heading.strip("#*: \t").lower())


def _messages(sections: Iterable[tuple[str, str]], seed: str) -> tuple[WholeMessage, ...]:
    """A path: each message is the parent of the next."""
    spoken = [(role, text) for role, text in sections if role != "system"]
    ids = [digest_of(f"{seed}\0{index}") for index in range(len(spoken))]
    return tuple(
        WholeMessage(
            message_id=ids[index],
            parent_id=ids[index - 1] if index else None,
            role=Role(role),
            text=text,
            active_child_id=ids[index + 1] if index + 1 < len(ids) else None,
        )
        for index, (role, text) in enumerate(spoken)
    )


def _conversation(
    conversation_id: str,
    title: str,
    sections: Iterable[tuple[str, str]],
    messages: tuple[WholeMessage, ...],
    *,
    created_s: float = 0.0,
    updated_s: float = 0.0,
) -> WholeConversation:
    system_prompt = "\n\n".join(text for role, text in sections if role == "system")
    if len(system_prompt) > MAX_SYSTEM_PROMPT_CHARS:
        raise BrokenEntryError(
            f"Its system prompt is longer than {MAX_SYSTEM_PROMPT_CHARS:,} characters."
        )
    return WholeConversation(
        conversation_id=conversation_id,
        title=title,
        settings=ChatSettings(system_prompt=system_prompt),
        created_s=created_s,
        updated_s=updated_s,
        active_root_id=messages[0].message_id if messages else None,
        messages=messages,
    )
