"""What a View changes on the page."""

from __future__ import annotations

import asyncio

import gradio as gr

from engine import FinishReason
from ui.chat.chats import Message, ReplyFacts, Role
from ui.chat.settings import ChatSettings
from ui.handlers import ChatEntry, ContextUse, View
from ui.panels.chat import ChatPanel, build_chat_panel, history_of


def make_panel() -> ChatPanel:
    """In an event loop: outside of one Gradio makes its own and leaves it open."""

    async def build() -> ChatPanel:
        with gr.Blocks():
            return build_chat_panel()

    return asyncio.run(build())


def test_an_empty_view_changes_nothing() -> None:
    assert make_panel().updates(View()) == {}


def test_every_part_of_a_view_reaches_a_component() -> None:
    panel = make_panel()
    view = View(
        chat_id="c",
        messages=(),
        chats=(ChatEntry("<b>", "c"),),
        question="",
        settings=ChatSettings(),
        notice="No <b>.",
        live_text="a <b>",
        status="Writing",
        is_answering=False,
        is_ready=True,
        context=ContextUse(3, 10),
    )
    updates = panel.updates(view)
    assert set(updates) == set(panel.outputs())
    assert updates[panel.live] == "a &#x0003C;b>"
    assert updates[panel.chat_list]["choices"] == [("<b>", "c")]
    assert updates[panel.notice]["value"] == "No &#x0003C;b>."
    assert updates[panel.context]["line"] == "3 of 10 tokens of context"


def test_while_answering_stop_takes_the_place_of_send() -> None:
    panel = make_panel()
    updates = panel.updates(View(is_answering=True, is_ready=True, messages=()))
    assert updates[panel.stop]["visible"] is True
    assert updates[panel.send]["visible"] is False
    assert updates[panel.regenerate]["interactive"] is False


def test_settings_controls_are_in_the_order_of_their_fields() -> None:
    panel = make_panel()
    fields = list(ChatSettings.__dataclass_fields__)
    assert panel.settings.inputs() == [getattr(panel.settings, name) for name in fields]


def test_br_63_messages_are_shown_literally() -> None:
    facts = ReplyFacts(finish_reason=FinishReason.ERROR, error="<i>")
    shown = history_of([Message(Role.USER, "<b>"), Message(Role.ASSISTANT, "List<int>", facts)])
    assert [part["content"]["text"] for part in shown] == [
        "&#x0003C;b>",
        "List&#x0003C;int>",
        "\u2063Failed: &#x0003C;i>",
    ]


def test_reasoning_is_a_part_of_its_own() -> None:
    facts = ReplyFacts(finish_reason=FinishReason.ABORT)
    shown = history_of([Message(Role.ASSISTANT, "<think>hm</think>\n4", facts)])
    assert [part["content"]["text"] for part in shown] == [
        "hm",
        "4",
        "\u2063Stopped before the first word",
    ]
    assert shown[0]["metadata"]["title"] == "Reasoning"


def test_indentation_is_kept() -> None:
    text = "def f():\n    return 1\n    # end"
    panel = make_panel()
    shown = panel.history.postprocess(history_of([Message(Role.USER, text)]))
    assert shown.root[0].content[0].text == text
    assert panel.live.postprocess(text) == text
