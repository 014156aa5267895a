"""The page's events: all of them stay in the browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ui.layout import build_page


async def build() -> dict[str, Any]:
    config: dict[str, Any] = build_page().get_config_file()
    return config


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return asyncio.run(build())


def test_no_event_of_the_chat_reaches_the_server(config: dict[str, Any]) -> None:
    assert config["dependencies"] != []
    for event in config["dependencies"]:
        assert not event["backend_fn"]
        assert "window.hearth" in event["js"]
        assert event["trigger_mode"] == "multiple"  # none is dropped while another one runs


def test_gradio_keeps_no_connection_open(config: dict[str, Any]) -> None:
    """Its heartbeat is what makes it reload the page when a connection breaks."""
    assert not config.get("connect_heartbeat")


def test_the_page_has_two_tabs(config: dict[str, Any]) -> None:
    tabs = [part["props"] for part in config["components"] if part["type"] == "tabitem"]
    assert [tab["id"] for tab in tabs] == ["chat", "dashboard"]


def test_everything_a_person_reads_is_translated(config: dict[str, Any]) -> None:
    names = ("label", "info", "placeholder")
    buttons = [part["props"]["value"] for part in config["components"] if part["type"] == "button"]
    texts = [
        part["props"].get(name)
        for part in config["components"]
        if part["type"] in ("textbox", "slider", "number", "dropdown", "accordion", "tabitem")
        for name in names
    ]
    readable = [str(text) for text in [*texts, *buttons] if text and text != "☰"]
    assert len(readable) > 25
    assert [text for text in readable if not text.startswith("__i18n__")] == []
