"""The chat tab: its components and nothing else. assets/chat/ brings them to life."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gradio as gr

from ui.chat.settings import ChatSettings

_TEMPLATES = Path(__file__).parents[2] / "assets" / "chat"


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

    @staticmethod
    def names() -> list[str]:
        return list(ChatSettings.__dataclass_fields__)

    def in_order(self) -> list[gr.components.Component]:
        return [getattr(self, name) for name in self.names()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPanel:
    """`fill` and `fill_presets` are hidden: the script presses them to bring values in."""

    preset: gr.Dropdown
    save_preset: gr.Button
    delete_preset: gr.Button
    controls: SettingsControls
    fill: gr.Button
    fill_presets: gr.Button


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPanel:
    new_chat: gr.Button
    settings: SettingsPanel
    question: gr.Textbox
    send: gr.Button
    stop: gr.Button


def build_chat_panel(texts: gr.I18n) -> ChatPanel:
    """Create the panel inside the current Blocks or Tab."""
    with gr.Row(elem_id="chat"):
        gr.Button("☰", elem_id="side-toggle", size="sm")
        with gr.Column(elem_id="side", scale=0, min_width=272):
            new_chat = gr.Button(texts("side.new_chat"), elem_id="new-chat", size="md")
            _build_search(texts)
            _container("chat-list")
            settings = _build_settings(texts)
            _container("side-foot")
        with gr.Column(elem_id="main"):
            _container("banner")
            _container("conversation")
            _container("notice")
            question, send, stop = _build_composer(texts)
            with gr.Row(elem_id="below"):
                _container("context", template="meter")
                _container("hint")
    return ChatPanel(
        new_chat=new_chat,
        settings=settings,
        question=question,
        send=send,
        stop=stop,
    )


def _container(elem_id: str, template: str | None = None) -> gr.HTML:
    """A place that the script fills. Nothing that a person or a model wrote is put in here."""
    path = _TEMPLATES / f"{template or elem_id.replace('-', '_')}.html"
    return gr.HTML(
        html_template=path.read_text(encoding="utf-8"),
        apply_default_css=False,
        container=False,
        padding=False,
        elem_id=elem_id,
    )


def _build_search(texts: gr.I18n) -> None:
    gr.Textbox(
        elem_id="search",
        label=texts("side.search"),
        placeholder=texts("side.search"),
        show_label=False,
        container=False,
        max_lines=1,
        max_length=200,
        html_attributes=gr.InputHTMLAttributes(enterkeyhint="search", autocomplete="off"),
    )


def _build_composer(texts: gr.I18n) -> tuple[gr.Textbox, gr.Button, gr.Button]:
    with gr.Row(elem_id="composer"):
        question = gr.Textbox(
            elem_id="question",
            show_label=False,
            label=texts("composer.label"),
            container=False,
            placeholder=texts("composer.placeholder"),
            html_attributes=gr.InputHTMLAttributes(enterkeyhint="send"),
            lines=1,
            max_lines=10,
            autofocus=True,
        )
        send = gr.Button(
            texts("composer.send"), elem_id="send", variant="primary", scale=0, min_width=88
        )
        stop = gr.Button(texts("composer.stop"), elem_id="stop", scale=0, min_width=88)
    return question, send, stop


def _build_settings(texts: gr.I18n) -> SettingsPanel:
    fill = gr.Button("", visible="hidden", elem_id="fill-settings")
    fill_presets = gr.Button("", visible="hidden", elem_id="fill-presets")
    with gr.Accordion(texts("settings.title"), open=False, elem_id="settings"):
        preset = gr.Dropdown(
            [],
            label=texts("settings.preset"),
            info=texts("settings.preset_info"),
            elem_id="preset",
            filterable=False,
            interactive=True,
        )
        with gr.Row(elem_id="preset-buttons"):
            save_preset = gr.Button(texts("presets.save"), elem_id="save-preset", size="sm")
            delete_preset = gr.Button(texts("presets.delete"), elem_id="delete-preset", size="sm")
        controls = _build_controls(texts)
    return SettingsPanel(
        preset=preset,
        save_preset=save_preset,
        delete_preset=delete_preset,
        controls=controls,
        fill=fill,
        fill_presets=fill_presets,
    )


def _build_controls(texts: gr.I18n) -> SettingsControls:
    usual = ChatSettings()

    def slider(name: str, low: float, high: float, step: float, info: str) -> gr.Slider:
        return gr.Slider(
            low,
            high,
            value=getattr(usual, name),
            step=step,
            label=texts(f"settings.{name}"),
            info=texts(f"settings.{info}"),
            elem_id=name.replace("_", "-"),
            buttons=[],
            interactive=True,  # Gradio takes what is only an output for one that is only shown
        )

    return SettingsControls(
        system_prompt=gr.Textbox(
            usual.system_prompt,
            label=texts("settings.system_prompt"),
            placeholder=texts("settings.system_prompt_placeholder"),
            elem_id="system-prompt",
            lines=3,
            max_lines=8,
            interactive=True,
        ),
        temperature=slider("temperature", 0, 2, 0.05, "temperature_info"),
        top_p=slider("top_p", 0.01, 1, 0.01, "one_is_off"),
        top_k=slider("top_k", 0, 200, 1, "zero_is_off"),
        min_p=slider("min_p", 0, 1, 0.01, "zero_is_off"),
        max_tokens=slider("max_tokens", 1, 4096, 1, "max_tokens_info"),
        repetition_penalty=slider("repetition_penalty", 0.5, 2, 0.05, "one_is_off"),
        seed=gr.Number(
            label=texts("settings.seed"),
            info=texts("settings.seed_info"),
            placeholder=texts("settings.seed_placeholder"),
            value=None,
            precision=0,
            elem_id="seed",
            interactive=True,
        ),
    )
