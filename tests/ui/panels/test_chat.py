"""The chat tab's components, and the templates that the scripts fill."""

from __future__ import annotations

import asyncio
import re

import gradio as gr
import pytest

from ui.chat.settings import ChatSettings
from ui.i18n import page_texts
from ui.panels.chat import ChatPanel, SettingsControls, build_chat_panel
from ui.theme import ASSETS


async def build() -> tuple[gr.Blocks, ChatPanel]:
    with gr.Blocks() as page:
        panel = build_chat_panel(page_texts())
    return page, panel


@pytest.fixture(scope="module")
def built() -> tuple[gr.Blocks, ChatPanel]:
    return asyncio.run(build())  # outside of a loop Gradio leaves one of its own open


def test_there_is_a_control_for_each_setting(built: tuple[gr.Blocks, ChatPanel]) -> None:
    controls = built[1].settings.controls
    names = SettingsControls.names()
    assert names == list(ChatSettings.__dataclass_fields__)
    assert [control.elem_id for control in controls.in_order()] == [
        name.replace("_", "-") for name in names
    ]


def test_the_controls_begin_with_the_usual_values(built: tuple[gr.Blocks, ChatPanel]) -> None:
    values = [control.value for control in built[1].settings.controls.in_order()]
    assert values == [getattr(ChatSettings(), name) for name in SettingsControls.names()]


def test_controls_that_are_filled_in_can_still_be_changed(
    built: tuple[gr.Blocks, ChatPanel],
) -> None:
    controls = [*built[1].settings.controls.in_order(), built[1].settings.preset]
    assert all(control.interactive for control in controls)


def test_the_ids_that_scripts_and_styles_name_exist_once(
    built: tuple[gr.Blocks, ChatPanel],
) -> None:
    ids = [block.elem_id for block in built[0].blocks.values() if block.elem_id]
    assert len(ids) == len(set(ids))
    main = (ASSETS / "chat" / "main.js").read_text("utf-8")
    parts = re.search(r'const PARTS = "([^"]+)"', main)
    assert parts is not None
    templates = "".join(path.read_text("utf-8") for path in (ASSETS / "chat").glob("*.html"))
    inner = set(re.findall(r'id="([^"]+)"', templates))
    assert {part.removeprefix("#") for part in parts[1].split()} - set(ids) - inner == set()


def test_templates_carry_no_text_of_their_own_and_nothing_that_gradio_compiles() -> None:
    for path in (ASSETS / "chat").glob("*.html"):
        template = path.read_text("utf-8")
        assert "${" not in template
        assert "{{" not in template
        assert re.sub(r"<[^>]*>|\s", "", template) == "", path.name
