"""The panel's files: nothing that a template engine would take for its own."""

from __future__ import annotations

import asyncio
import re

import gradio as gr
import pytest

from engine import GpuSnapshot
from ui.dashboard_row import DashboardRow
from ui.dashboard_stream import CHARTED, CHARTED_OF_GPU
from ui.panels.dashboard import ASSETS, DashboardPanel, build_dashboard_panel


def read(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


async def build() -> tuple[gr.Blocks, DashboardPanel]:
    """In an event loop: outside of one Gradio makes its own and leaves them open."""
    with gr.Blocks() as page:
        return page, build_dashboard_panel()


def test_the_panel_takes_no_value_and_no_event() -> None:
    page, panel = asyncio.run(build())
    assert panel.page.value is None
    assert panel.page.props == {}
    assert page.fns == {}


@pytest.mark.parametrize("name", ["dashboard.html", "dashboard.css"])
def test_templates_contain_no_placeholders(name: str) -> None:
    assert re.findall(r"\$\{|\{\{|`|\\|@children|<script", read(name)) == []


def test_texts_are_never_put_into_the_page_as_markup() -> None:
    script = read("dashboard.js") + read("dashboard_chart.js")
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script) == []
    )


def test_every_figure_the_page_names_is_in_a_row() -> None:
    shown = re.findall(r'data-(?:value|share)="(\w+)"', read("dashboard.html"))
    assert set(shown) <= set(DashboardRow.__slots__)
    assert set(CHARTED) <= set(DashboardRow.__slots__)
    assert set(CHARTED_OF_GPU) <= set(GpuSnapshot.__slots__)


def test_every_charted_figure_is_drawn_and_the_other_way_round() -> None:
    script = read("dashboard.js")
    assert [name for name in CHARTED if name != "time_s" and f'"{name}"' not in script] == []
    assert [name for name in CHARTED_OF_GPU if f'of("{name}")' not in script] == []
    figures = re.findall(r'data-chart="(\w+)"', read("dashboard.html"))
    assert [name for name in figures if f"{name}: {{ title" not in script] == []


def test_every_format_the_page_names_exists() -> None:
    formats = re.findall(r'data-format="(\w+)"', read("dashboard.html"))
    chart = read("dashboard_chart.js")
    assert [name for name in formats if f"  {name}: (value)" not in chart] == []
