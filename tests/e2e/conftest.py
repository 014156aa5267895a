"""A browser and its visitors, and the page on a scripted server; one of each for a test file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.e2e.chat_page import ARGUMENTS, ChatPage
from tests.e2e.scripted_app import scripted_app
from tests.e2e.scripted_server import ScriptedServer
from tests.web_factories import served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)


@pytest.fixture
def person(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """person() is a new visitor: a browser profile of its own."""
    with contextlib.ExitStack() as visits:

        def visit(width: int = 1280, height: int = 800, **options: Any) -> BrowserContext:
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            visits.callback(context.close)
            return context

        yield visit


class Site(NamedTuple):
    """A scripted server, its address, and tabs of one visitor unless another is given."""

    server: ScriptedServer
    url: str
    person: Callable[..., BrowserContext]

    def visit(self, at: str = "/", *, is_ready: bool = True, **options: Any) -> ChatPage:
        return ChatPage(self.person(**options), self.url, at, is_ready=is_ready)


@pytest.fixture(scope="module")
def served_script() -> Iterator[tuple[ScriptedServer, str]]:
    server = ScriptedServer()
    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop in this one
        app = thread.submit(lambda: asyncio.run(scripted_app(server))).result()
    with served(app, lifespan="on") as url:
        yield server, url


@pytest.fixture
def site(
    served_script: tuple[ScriptedServer, str], person: Callable[..., BrowserContext]
) -> Iterator[Site]:
    server, url = served_script
    server.reset()
    yield Site(server, url, person)
    server.is_reachable = True
