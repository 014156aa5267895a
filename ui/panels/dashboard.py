"""The dashboard tab: one gr.HTML whose markup, style and script lie in assets/.

It is fed by ui/dashboard_stream.py and takes no part in Gradio's events. No figure, name or text is
ever put into the markup here: the script sets them as plain text.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import gradio as gr

ASSETS = Path(__file__).resolve().parents[2] / "assets"


class DashboardPanel(NamedTuple):
    page: gr.HTML


def build_dashboard_panel() -> DashboardPanel:
    """Create the panel inside the current Blocks or Tab."""
    return DashboardPanel(
        page=gr.HTML(
            html_template=_asset("dashboard.html"),
            css_template=_asset("dashboard.css"),
            js_on_load=_asset("dashboard_chart.js") + _asset("dashboard.js"),
            apply_default_css=False,
            elem_id="dashboard",
        )
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
