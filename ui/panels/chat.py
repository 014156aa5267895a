"""The chat tab: its components, and how a `View` becomes updates of them. Wires no events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from ui.chat.chats import Message, Role
from ui.chat.markup import literal_markdown, split_reasoning
from ui.chat.settings import ChatSettings
from ui.formatting import context_line, reply_line
from ui.handlers import NEW_CHAT, ContextUse, View

_METER_TEMPLATE = Path(__file__).parents[2] / "assets" / "context_meter.html"
_LATEX_DELIMITERS: list[dict[str, str | bool]] = [
    {"left": "$$", "right": "$$", "display": True},
    {"left": "\\[", "right": "\\]", "display": True},
    {"left": "\\(", "right": "\\)", "display": False},
]
_FACTS_MARK = "\u2063"  # invisible; assets/chat.js leaves such a line out when a reply is copied
_WELCOME = "### What is on your mind?\nThe model runs on this machine. Your chats stay on it too."


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsControls:
    """One control for each field of ChatSettings, in its order."""

    system_prompt: gr.Textbox
    temperature: gr.Slider
    top_p: gr.Slider
    top_k: gr.Slider
    min_p: gr.Slider
    max_tokens: gr.Slider
    repetition_penalty: gr.Slider
    seed: gr.Number

    def inputs(self) -> list[gr.components.Component]:
        return [getattr(self, name) for name in ChatSettings.__dataclass_fields__]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPanel:
    """The tab's components. The script presses `pause` and `resume` when the tab is left."""

    chat_id: gr.Textbox  # hidden: the open chat
    pause: gr.Button
    resume: gr.Button
    new_chat: gr.Button
    chat_list: gr.Radio
    delete_chat: gr.Button
    settings: SettingsControls
    history: gr.Chatbot
    live: gr.Markdown
    notice: gr.Markdown
    question: gr.Textbox
    send: gr.Button
    stop: gr.Button
    status: gr.Markdown
    context: gr.HTML
    regenerate: gr.Button

    def outputs(self) -> list[gr.components.Component]:
        """All that a View can change."""
        own = (getattr(self, name) for name in self.__slots__ if name != "settings")
        fixed = (self.new_chat, self.delete_chat, self.pause, self.resume)
        return [*(part for part in own if part not in fixed), *self.settings.inputs()]

    def updates(self, view: View) -> dict[gr.components.Component, Any]:
        """The parts that `view` sets, for Gradio."""
        updates: dict[gr.components.Component, Any] = {}
        if view.chat_id is not None:
            updates[self.chat_id] = view.chat_id
        if view.messages is not None:
            updates[self.history] = history_of(view.messages)
            updates[self.regenerate] = gr.update(interactive=bool(view.messages))
        if view.chats is not None:
            choices = [(entry.title, entry.chat_id) for entry in view.chats]
            updates[self.chat_list] = gr.update(choices=choices, value=view.chat_id or None)
        if view.settings is not None:
            updates |= self._settings_updates(view.settings)
        return updates | self._text_updates(view) | self._state_updates(view)

    def _settings_updates(self, settings: ChatSettings) -> dict[gr.components.Component, Any]:
        names = ChatSettings.__dataclass_fields__
        return {getattr(self.settings, name): getattr(settings, name) for name in names}

    def _text_updates(self, view: View) -> dict[gr.components.Component, Any]:
        updates: dict[gr.components.Component, Any] = {}
        if view.question is not None:
            updates[self.question] = view.question
        if view.notice is not None:
            text = literal_markdown(view.notice)
            updates[self.notice] = gr.update(value=text, visible=bool(text))
        if view.live_text is not None:
            updates[self.live] = _live_markdown(view.live_text)
        if view.status is not None:
            updates[self.status] = view.status
        return updates

    def _state_updates(self, view: View) -> dict[gr.components.Component, Any]:
        updates: dict[gr.components.Component, Any] = {}
        if view.is_answering is not None:
            updates[self.stop] = gr.update(visible=view.is_answering)
            updates[self.send] = gr.update(visible=not view.is_answering)
        if view.is_answering:
            updates[self.regenerate] = gr.update(interactive=False)
        if view.is_ready is not None:
            updates[self.send] = gr.update(interactive=view.is_ready, visible=not view.is_answering)
        if view.context is not None:
            updates[self.context] = _meter_value(view.context)
        return updates


def history_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as gr.Chatbot takes them; a reply's last part is the line of its facts."""
    history: list[dict[str, Any]] = []
    for message in messages:
        if message.role is Role.USER:
            history.append(_part("user", message.text))
            continue
        reply = split_reasoning(message.text)
        if reply.reasoning:
            reasoning = _part("assistant", reply.reasoning)
            history.append(reasoning | {"metadata": {"title": "Reasoning", "status": "done"}})
        if reply.text.strip():
            history.append(_part("assistant", reply.text))
        if message.facts is not None:
            history.append(_part("assistant", _FACTS_MARK + reply_line(message.facts)))
    return history


def _part(role: str, text: str) -> dict[str, Any]:
    """The long form of a text: Gradio takes the indentation from a plain string."""
    return {"role": role, "content": {"type": "text", "text": literal_markdown(text)}}


def _live_markdown(text: str) -> str:
    reply = split_reasoning(text)
    return literal_markdown(reply.text or reply.reasoning)


def _meter_value(context: ContextUse) -> dict[str, Any]:
    return {
        "used": context.num_tokens,
        "size": context.max_tokens,
        "line": context_line(context.num_tokens, context.max_tokens),
    }


def build_chat_panel() -> ChatPanel:
    chat_id = gr.Textbox(value=NEW_CHAT, visible="hidden", elem_id="open-chat")
    pause = gr.Button(visible="hidden", elem_id="pause")
    resume = gr.Button(visible="hidden", elem_id="resume")
    with gr.Row(elem_id="chat"):
        gr.Button("Chats and settings", elem_id="side-toggle", size="sm")  # for phones
        with gr.Column(elem_id="side", scale=0, min_width=272):
            new_chat = gr.Button("New chat", elem_id="new-chat", size="md")
            chat_list = gr.Radio(choices=[], elem_id="chat-list", label="Your chats")
            delete_chat = gr.Button("Delete this chat", elem_id="delete-chat", size="sm")
            settings = _build_settings()
        with gr.Column(elem_id="main"):
            with gr.Column(elem_id="conversation"):
                history = _build_history()
                live = _live_text()
            notice = gr.Markdown(elem_id="notice", visible=False)
            question, send, stop = _build_composer()
            with gr.Row(elem_id="below"):
                status = gr.Markdown(elem_id="status")
                context = gr.HTML(
                    {"used": 0, "size": 1, "line": ""},
                    elem_id="context",
                    html_template=_METER_TEMPLATE.read_text(encoding="utf-8"),
                )
                regenerate = gr.Button(
                    "Regenerate", elem_id="regenerate", size="sm", interactive=False, scale=0
                )
    return ChatPanel(
        chat_id=chat_id,
        pause=pause,
        resume=resume,
        new_chat=new_chat,
        chat_list=chat_list,
        delete_chat=delete_chat,
        settings=settings,
        history=history,
        live=live,
        notice=notice,
        question=question,
        send=send,
        stop=stop,
        status=status,
        context=context,
        regenerate=regenerate,
    )


def _live_text() -> gr.Markdown:
    """Markdown whose indentation is left alone: Gradio's own would strip it from code."""
    live = gr.Markdown(elem_id="live", latex_delimiters=_LATEX_DELIMITERS)
    # Not a subclass: Gradio writes a stub file beside every module that defines one.
    vars(live)["postprocess"] = lambda value: value
    return live


def _build_history() -> gr.Chatbot:
    return gr.Chatbot(
        elem_id="history",
        show_label=False,
        container=False,
        height="auto",
        layout="bubble",
        buttons=["copy"],
        placeholder=_WELCOME,
        latex_delimiters=_LATEX_DELIMITERS,
        autoscroll=False,
        feedback_options=None,
    )


def _build_composer() -> tuple[gr.Textbox, gr.Button, gr.Button]:
    with gr.Row(elem_id="composer"):
        question = gr.Textbox(
            elem_id="question",
            show_label=False,
            label="Your message",
            container=False,
            placeholder="Write a message",
            html_attributes=gr.InputHTMLAttributes(enterkeyhint="send"),
            lines=1,
            max_lines=10,
            autofocus=True,
        )
        send = gr.Button("Send", elem_id="send", variant="primary", scale=0, min_width=88)
        stop = gr.Button("Stop", elem_id="stop", visible=False, scale=0, min_width=88)
    return question, send, stop


def _build_settings() -> SettingsControls:
    usual = ChatSettings()
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        return SettingsControls(
            system_prompt=gr.Textbox(
                label="System prompt",
                value=usual.system_prompt,
                elem_id="system-prompt",
                lines=3,
                max_lines=8,
                placeholder="How the model shall answer",
            ),
            temperature=_slider("Temperature", 0, 2, usual.temperature, 0.05, "0 is greedy"),
            top_p=_slider("Top p", 0.01, 1, usual.top_p, 0.01, "1 turns it off"),
            top_k=_slider("Top k", 0, 200, usual.top_k, 1, "0 turns it off"),
            min_p=_slider("Min p", 0, 1, usual.min_p, 0.01, "0 turns it off"),
            max_tokens=_slider("Longest reply", 1, 4096, usual.max_tokens, 1, "in tokens"),
            repetition_penalty=_slider(
                "Repetition penalty", 0.5, 2, usual.repetition_penalty, 0.05, "1 turns it off"
            ),
            seed=gr.Number(
                label="Seed",
                info="empty draws anew each time",
                value=None,
                precision=0,
                elem_id="seed",
            ),
        )


def _slider(label: str, low: float, high: float, value: float, step: float, info: str) -> gr.Slider:
    return gr.Slider(
        low,
        high,
        value=value,
        step=step,
        label=label,
        info=info,
        elem_id=label.lower().replace(" ", "-"),
    )
