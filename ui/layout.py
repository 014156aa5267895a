"""The page: two tabs, and which script a control calls. No event reaches Gradio's server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from ui.i18n import page_texts
from ui.panels.chat import ChatPanel, SettingsPanel, build_chat_panel
from ui.panels.dashboard import build_dashboard_panel

_QUEUE_POLL_S = 0.5
_Components = Sequence[gr.components.Component]


def build_page() -> gr.Blocks:
    """Chat and Dashboard. Mount it with `page_options()`, beside /assets and /api/chat."""
    texts = page_texts()
    page: gr.Blocks
    with gr.Blocks(title="Hearth", fill_width=True, fill_height=True) as page:
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab(texts("tabs.chat"), id="chat"):
                panel = build_chat_panel(texts)
            with gr.Tab(texts("tabs.dashboard"), id="dashboard"):
                build_dashboard_panel()
        _wire_chat(panel)
        _wire_settings(panel.settings)
    page.queue(api_open=False)
    # Gradio looks for events of its own every millisecond, and there are none.
    page._queue.sleep_when_free = _QUEUE_POLL_S
    page._queue.progress_update_sleep_when_free = _QUEUE_POLL_S
    return page


def _wire_chat(panel: ChatPanel) -> None:
    send = "() => window.hearth?.send()"
    _call(panel.question.submit, send)
    _call(panel.send.click, send)
    _call(panel.stop.click, "() => window.hearth?.stop()")
    _call(panel.new_chat.click, "() => window.hearth?.newChat()")


def _wire_settings(settings: SettingsPanel) -> None:
    # What is typed is read by assets/chat/settings.js: a Textbox's own event misses what is pasted.
    values = f"() => window.hearth.settingValues({json.dumps(settings.controls.names())})"
    _call(settings.fill.click, values, outputs=settings.controls.in_order())
    choices = "() => window.hearth.presetChoices()"
    _call(settings.fill_presets.click, choices, outputs=[settings.preset])
    apply = "(name) => window.hearth?.applyPreset(name)"
    _call(settings.preset.input, apply, inputs=[settings.preset])
    _call(settings.save_preset.click, "() => window.hearth?.savePreset()")
    _call(settings.delete_preset.click, "() => window.hearth?.deletePreset()")


def _call(trigger: Callable[..., Any], script: str, **components: _Components) -> None:
    """In the browser only. Gradio would drop what comes while an earlier one runs."""
    trigger(fn=None, js=script, trigger_mode="multiple", **components)
