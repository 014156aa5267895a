"""The chat page in a browser tab, as a person uses it; for scripted and for real servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, Page

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BOX = "#question textarea"
_READY = """window.hearth && [...document.querySelectorAll("#send:not([disabled]), #stop")].some(
    (button) => button.offsetParent !== null)"""
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class ChatPage:
    """A browser tab with the chat open, and all that went wrong in it."""

    def __init__(
        self, context: BrowserContext, url: str, at: str = "/", *, is_ready: bool = True
    ) -> None:
        self.page: Page = context.new_page()
        self.url = url
        self.errors: list[str] = []
        self.is_failure_expected = False  # requests that fail are part of the test
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.on("request", self._on_request)
        self.page.goto(url + at)
        self.page.wait_for_function("window.hearth", timeout=60_000)
        if is_ready:
            self.page.wait_for_function(_READY, timeout=60_000)

    # --- writing ---

    def write(self, text: str) -> None:
        self.page.fill(BOX, text)

    def send(self, text: str) -> None:
        self.write(text)
        self.page.press(BOX, "Enter")

    def ask(self, text: str) -> str:
        """Send and wait for the end of the answer; returns its text."""
        number = self.num_replies + 1
        self.send(text)
        self.wait_for_replies(number)
        return self.replies[-1]

    def wait_for_replies(self, number: int, limit_s: float = 60) -> None:
        self.wait_until(lambda: self.num_replies == number and not self.is_answering, limit_s)

    def wait_for_live_text(self, limit_s: float = 60) -> str:
        """Until the answer that is being written shows something."""
        self.wait_until(lambda: bool(self.live_text), limit_s)
        return self.live_text

    def stop(self) -> None:
        self.page.click("#stop")

    @property
    def draft(self) -> str:
        return self.page.input_value(BOX)

    @property
    def notice(self) -> str:
        return self._text("#notice-text")

    # --- the conversation ---

    @property
    def is_answering(self) -> bool:
        return self.page.is_visible("#stop")

    @property
    def live_text(self) -> str:
        return self._text(".message.is-live > .text")

    @property
    def questions(self) -> list[str]:
        texts = self.page.locator(".message.is-question:not(.is-pending) > .text")
        return [text.strip() for text in texts.all_inner_texts()]

    @property
    def replies(self) -> list[str]:
        texts = self.page.locator(".message.is-answer:not(.is-live) > .text")
        return [text.strip() for text in texts.all_inner_texts()]

    @property
    def num_replies(self) -> int:
        return len(self.replies)

    # --- the list ---

    @property
    def chats(self) -> list[str]:
        return self.page.locator(".chat-row .chat-title").all_inner_texts()

    @property
    def groups(self) -> list[str]:
        return self.page.locator(".chat-list h3").all_inner_texts()

    @property
    def open_chat(self) -> str:
        return self._text(".chat-row.open .chat-title")

    def open(self, title: str) -> None:
        self.page.locator(".chat-link", has_text=title).first.click()
        self.wait_until(lambda: title in self.open_chat)

    def new_chat(self) -> None:
        self.page.click("#new-chat")
        self.wait_until(lambda: self.page.locator(".message").count() == 0)

    def choose(self, title: str, item: str) -> None:
        """An item of a conversation's menu."""
        row = self.page.locator(".chat-row", has_text=title).first
        row.hover()
        row.locator(".chat-menu").click()
        self.choose_item(item)

    def choose_more(self, item: str) -> None:
        """An item of the menu at the side's foot."""
        self.page.click("#more")
        self.choose_item(item)

    def choose_item(self, item: str) -> None:
        self.page.locator(".hearth-menu button", has_text=item).first.click()

    # --- settings ---

    def open_settings(self) -> None:
        if not self.page.is_visible("#max-tokens"):
            self.page.click("#settings > button")
            self.page.wait_for_selector("#max-tokens")
            self.page.wait_for_timeout(300)

    def fill_setting(self, box: str, value: str) -> None:
        """Fill in until it stays: Gradio may still be building the control, and forgets it then."""
        self.open_settings()
        while True:
            self.page.fill(box, value)
            self.page.press(box, "Tab")
            self.page.wait_for_timeout(300)
            if self.page.input_value(box) == value:
                return

    def set_number(self, control: str, value: str) -> None:
        self.fill_setting(f"#{control} input[type=number]", value)

    def number(self, control: str) -> str:
        self.open_settings()
        return self.page.input_value(f"#{control} input[type=number]")

    # --- all the rest ---

    @property
    def banner(self) -> str:
        return self._text(".banner").replace("\n", " ")

    @property
    def toasts(self) -> list[str]:
        return self.page.locator(".toast-text").all_inner_texts()

    @property
    def meter(self) -> str:
        return self._text(".meter summary")

    def overflow_px(self) -> int:
        return int(self.page.evaluate(_OVERFLOW))

    def wait_until(self, condition: Callable[[], bool], limit_s: float = 30) -> None:
        """The page's events are only delivered while Playwright itself waits."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.page.inner_text("body")
            self.page.wait_for_timeout(30)

    def _text(self, selector: str) -> str:
        found = self.page.locator(selector)
        texts = [text.strip() for text in found.all_inner_texts()]
        return texts[0] if texts and found.first.is_visible() else ""

    def _on_console(self, message: Any) -> None:
        is_failure = "Failed to load resource" in message.text or "WebSocket" in message.text
        if message.type == "error" and not (is_failure and self.is_failure_expected):
            self.errors.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.errors.append(f"foreign request: {request.url}")
