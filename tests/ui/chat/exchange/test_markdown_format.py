"""Conversations as Markdown, and back."""

from __future__ import annotations

import pytest

from tests.storage_factories import Library
from ui.chat.conversation import Role
from ui.chat.exchange.export import export_markdown
from ui.chat.exchange.fields import BrokenEntryError
from ui.chat.exchange.importing import ImportResult, import_file
from ui.chat.exchange.markdown_format import conversation_from_markdown
from ui.chat.settings import ChatSettings
from ui.chat.storage.whole import WholeConversation, WholeMessage

HARD_TEXTS = [
    "plain",
    "## User\n\nnot a message of its own",
    "<!-- hearth:user -->\n## User\n\nneither",
    "\\<!-- hearth:assistant -->",
    "\\\\<!-- hearth:conversation {} -->\nand more",
    "\n\nempty lines around\n\n\n",
    "\n",
    "```\n# code\n<!-- hearth:user -->\n```",
    "    indented\n\ttabbed",
    "trailing spaces  \nnext",
    "$$\\frac{a_b}{c}$$ costs $5",
    "1 < 2 && 3 > 2 <b>bold</b>",
    "学习中文 😀\u2028\u00a0",
    "lone \r carriage return",
    "# Title",
]


def of_texts(*texts: str, title: str = "Title", system_prompt: str = "") -> WholeConversation:
    messages = tuple(
        WholeMessage(
            message_id=f"m{index}",
            parent_id=f"m{index - 1}" if index else None,
            role=Role.ASSISTANT if index % 2 else Role.USER,
            text=text,
            active_child_id=f"m{index + 1}" if index + 1 < len(texts) else None,
        )
        for index, text in enumerate(texts)
    )
    return WholeConversation(
        conversation_id="c1",
        title=title,
        settings=ChatSettings(system_prompt=system_prompt),
        created_s=5.0,
        updated_s=6.5,
        active_root_id="m0" if texts else None,
        messages=messages,
    )


def said(conversation: WholeConversation) -> list[tuple[Role, str]]:
    return [(message.role, message.text) for message in conversation.messages]


def test_it_is_pleasant_to_read() -> None:
    text = export_markdown(of_texts("Hi", "Hello\n\n- you", system_prompt="Be kind."))
    lines = text.split("\n")
    assert lines[0] == "# Title"
    assert [line for line in lines[4:] if line] == [
        "<!-- hearth:system -->",
        "## System prompt",
        "Be kind.",
        "<!-- hearth:user -->",
        "## User",
        "Hi",
        "<!-- hearth:assistant -->",
        "## Assistant",
        "Hello",
        "- you",
    ]


def test_every_text_comes_back_as_it_was() -> None:
    whole = of_texts(*HARD_TEXTS, title="A # title", system_prompt="<!-- hearth:user -->\nx")
    copy = conversation_from_markdown(export_markdown(whole), "file name")
    assert said(copy) == said(whole)
    assert (copy.title, copy.settings) == (whole.title, whole.settings)
    assert (copy.conversation_id, copy.created_s, copy.updated_s) == ("c1", 5.0, 6.5)


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_each_hard_text_alone(text: str) -> None:
    whole = of_texts(text, text)
    assert said(conversation_from_markdown(export_markdown(whole), "")) == said(whole)


def test_a_conversation_without_messages() -> None:
    copy = conversation_from_markdown(export_markdown(of_texts(title="Empty")), "")
    assert (copy.title, copy.messages) == ("Empty", ())


def test_only_the_shown_path_is_exported(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    shelf.again("ann", "a1", "1!")
    whole = shelf.store.whole_conversation("ann", first.conversation_id)
    assert "1!" in export_markdown(whole)
    assert "\n1\n" not in export_markdown(whole)


def test_an_own_export_is_known_again_until_it_is_edited(shelf: Library) -> None:
    first = shelf.exchange("ann", "one", "1")
    whole = shelf.store.whole_conversation("ann", first.conversation_id)
    text = export_markdown(whole)
    assert import_file("ann", text.encode(), shelf.store) == ImportResult(0, 1, ())
    edited = text.replace("\n1\n", "\n1 and only\n").encode()
    for expected in (ImportResult(1, 0, ()), ImportResult(0, 1, ())):
        assert import_file("ann", edited, shelf.store) == expected
    assert shelf.shown("ann", first.conversation_id) == ["one", "1"]
    [copy] = [e for e in shelf.store.entries("ann") if e.conversation_id != whole.conversation_id]
    assert shelf.shown("ann", copy.conversation_id) == ["one", "1 and only"]
    assert import_file("bob", text.encode(), shelf.store) == ImportResult(1, 0, ())


def test_line_ends_of_windows_make_no_difference() -> None:
    text = export_markdown(of_texts("two\nlines", "x"))
    copy = conversation_from_markdown(text.replace("\n", "\r\n"), "")
    assert said(copy) == [(Role.USER, "two\nlines"), (Role.ASSISTANT, "x")]
    assert copy.conversation_id == "c1"


def test_files_written_by_hand() -> None:
    text = (
        "\ufeff# My talk\n\nAn introduction.\n\n### You:\n\nHi\n\n## **ChatGPT**\nHello\n```\n"
        "## User\n```\n## Details\nmore\n\n## System\nBe kind.\n"
    )
    copy = conversation_from_markdown(text, "name")
    assert copy.title == "My talk"
    assert copy.settings.system_prompt == "Be kind."
    assert said(copy) == [
        (Role.USER, "Hi"),
        (Role.ASSISTANT, "Hello\n```\n## User\n```\n## Details\nmore"),
    ]
    assert conversation_from_markdown("## 用户\n你好\n## 助手\n您好", "name").title == "name"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "# Only a title\n",
        "## Recipe\n\nFlour",
        "# T\n\n<!-- hearth:conversation {not json} -->\n\n<!-- hearth:user -->\nHi",
        "# T\n\n<!-- hearth:conversation {} -->\n\n<!-- hearth:user -->\nHi",
        "## System\n" + "x" * 60_000 + "\n## User\nHi",
    ],
)
def test_what_is_no_conversation_is_refused(text: str) -> None:
    with pytest.raises(BrokenEntryError):
        conversation_from_markdown(text, "name")


def test_large_hostile_files_take_no_long_time() -> None:
    for piece in ("# ", "```\n## User\n", "<!-- hearth:conversation {", "<!-- hearth:user -->\n"):
        text = piece * (1_000_000 // len(piece))
        try:
            conversation_from_markdown(text, "")
        except BrokenEntryError:
            continue
