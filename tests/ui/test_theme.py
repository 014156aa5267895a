"""What the page is mounted with."""

from __future__ import annotations

import inspect
import re

import gradio as gr

from ui.theme import ASSETS, hearth_theme, page_options


def test_every_file_of_the_page_exists() -> None:
    options = page_options()
    assert [path for path in options["css_paths"] if not path.is_file()] == []
    addresses = re.findall(r'(?:src|href)="/assets/([^"]+)"', options["head"])
    assert addresses == ["chat/main.js"]
    assert [name for name in addresses if not (ASSETS / name).is_file()] == []


def test_the_options_are_those_of_mount_gradio_app() -> None:
    assert set(page_options()) <= set(inspect.signature(gr.mount_gradio_app).parameters)


def test_no_font_and_no_style_comes_from_elsewhere() -> None:
    theme = hearth_theme()
    assert theme._stylesheets == []
    for path in page_options()["css_paths"]:
        assert re.findall(r'url\((?!"?data:)|@import', path.read_text("utf-8")) == []
