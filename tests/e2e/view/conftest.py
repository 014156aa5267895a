"""A browser that has a name for this machine which is not its own, and a scripted server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.e2e.view.harness import ScriptedServer

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    # A name that is not this machine's own: a page of plain http, without a clipboard.
    "--host-resolver-rules=MAP team.example 127.0.0.1",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()
