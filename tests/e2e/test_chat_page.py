"""The chat in a real browser: on the real server, and on an engine that repeats what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from engine import ChatRequest, FinishReason, Usage
from tests.factories import make_model_info
from tests.fakes import ScriptedChat, ScriptedChatStream
from tests.server import RunningServer
from tests.web_factories import served
from ui.chat.chats import ChatStore
from ui.chat.person import PersonCookie, PersonMiddleware
from ui.layout import build_page
from ui.middleware import SecurityHeaders
from ui.theme import page_options

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOLD = "Hold the line"
# Send is hidden behind Stop where an answer is being written already.
READY = """[...document.querySelectorAll("#send:not([disabled]), #stop")].some(
    (button) => button.offsetParent !== null)"""
HOSTILE_LINES = (
    "<I am visible>",
    "std::vector<int> v; if (a<b && c>d)",
    "<script>window.__ran=1</script>",
    "<img src=x onerror=window.__ran=2>",
    "<style>*{display:none}</style>",
    "[x](javascript:window.__ran=3)",
)


class ChatPage:
    """A browser tab with the chat open, and all that went wrong in it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.page: Page = context.new_page()
        self.url = url
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.on("request", self._on_request)
        self.page.goto(url)
        self.page.wait_for_function(READY, timeout=60_000)
        self.page.wait_for_function("document.querySelector('#context span')?.textContent")

    def open_settings(self) -> None:
        if not self.page.is_visible("#longest-reply"):
            self.page.click("#settings > button")
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

    def send(self, text: str) -> None:
        self.page.fill("#question textarea", text)
        self.page.press("#question textarea", "Enter")

    def ask(self, text: str) -> str:
        """Send and wait for the end; returns the reply with the line under it."""
        self.send(text)
        self.wait_for_replies(self.num_replies + 1)
        return self.replies[-1]

    def wait_for_replies(self, number: int) -> None:
        self.wait_until(lambda: self.num_replies == number and not self.is_answering)

    def wait_for_live_text(self) -> str:
        self.page.wait_for_selector("#live :is(p, h1, h2, h3, h4, li, pre)", timeout=60_000)
        return self.page.inner_text("#live").strip()

    def wait_until(self, condition: Callable[[], bool], limit_s: float = 60) -> None:
        """The page's events are only delivered while Playwright itself waits."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.page.inner_text("#main")
            self.page.wait_for_timeout(50)

    @property
    def is_answering(self) -> bool:
        return self.page.is_visible("#stop")

    @property
    def num_replies(self) -> int:
        return len(self.replies)

    @property
    def replies(self) -> list[str]:
        return self.page.locator("#history .bot-row").all_inner_texts()

    @property
    def questions(self) -> list[str]:
        texts = self.page.locator("#history .user-row").all_inner_texts()
        return [text.strip() for text in texts]

    @property
    def chats(self) -> list[str]:
        return self.page.locator("#chat-list label").all_inner_texts()

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.errors.append(f"foreign request: {request.url}")


class Parrot(ScriptedChat):
    """Repeats the last message as its whole answer; after HOLD it goes on until it is stopped."""

    async def open(self, request: ChatRequest) -> ScriptedChatStream:
        stream = await super().open(request)
        text, usage = request.messages[-1].content, Usage(40, 32, 8)
        stream.say(text, token_ids=(1,), usage=usage)
        if text != HOLD:
            stream.say(finish_reason=FinishReason.STOP, usage=usage)
        return stream


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)


@pytest.fixture
def person(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """person() is a new visitor: a browser profile of its own."""
    with contextlib.ExitStack() as visits:

        def visit(width: int = 1280, height: int = 800) -> BrowserContext:
            context = browser.new_context(viewport={"width": width, "height": height})
            visits.callback(context.close)
            return context

        yield visit


@pytest.fixture(scope="module")
def parrot() -> Iterator[tuple[Parrot, str]]:
    engine = Parrot(make_model_info())
    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop in this one
        app = thread.submit(lambda: asyncio.run(parrot_app(engine))).result()
    with served(app, lifespan="on") as url:
        yield engine, url


async def parrot_app(engine: Parrot) -> FastAPI:
    """Made in an event loop: outside of one Gradio makes its own and leaves them open."""
    people, app = PersonCookie(b"secret"), FastAPI()
    page = build_page(engine=engine, chat=engine, chats=ChatStore(), people=people)  # type: ignore[arg-type]
    gr.mount_gradio_app(app, page, path="/", ssr_mode=False, **page_options())
    app.add_middleware(PersonMiddleware, cookie=people)
    app.add_middleware(SecurityHeaders)
    return app


def test_a_chat_of_three_turns_on_the_real_model(server: RunningServer, person: Any) -> None:
    chat = ChatPage(person(), server.url)
    chat.set_number("longest-reply", "24")
    chat.set_number("temperature", "0")
    replies = [chat.ask(text) for text in ("Name a colour.", "Another one?", "And a third?")]
    assert chat.questions == ["Name a colour.", "Another one?", "And a third?"]
    assert all("to first token" in reply and "tokens/s" in reply for reply in replies)
    assert int(replies[2].split("prompt tokens, ")[1].split(" from cache")[0]) > 40
    assert chat.chats == ["Name a colour."]
    assert chat.page.inner_text("#context").endswith("of 2,048 tokens of context")
    assert chat.errors == []


def test_br_60_stop_keeps_the_words_and_regenerate_answers_anew(
    server: RunningServer, person: Any
) -> None:
    chat = ChatPage(person(), server.url)
    chat.send("Tell me a very long story about a lighthouse keeper.")
    start = chat.wait_for_live_text()[:12]
    chat.page.click("#stop")
    chat.wait_for_replies(1)
    assert chat.replies[0].strip().startswith(start)
    assert "Stopped" in chat.replies[0]
    chat.set_number("longest-reply", "8")
    chat.page.click("#regenerate")
    chat.wait_until(lambda: "8 reply tokens" in "".join(chat.replies))
    assert "Ended at the length limit" in chat.replies[0]
    assert (chat.num_replies, chat.errors) == (1, [])


def test_br_66_a_reload_finds_the_answer(server: RunningServer, person: Any) -> None:
    chat = ChatPage(person(), server.url)
    chat.set_number("longest-reply", "48")
    chat.send("Count from one to two hundred in words.")
    start = chat.wait_for_live_text()[:8]
    chat.page.reload()
    chat.wait_for_replies(1)
    assert chat.replies[0].strip().startswith(start)
    assert "to first token" in chat.replies[0]


def test_br_59_two_people_never_see_each_others_chats(server: RunningServer, person: Any) -> None:
    alice, bob = ChatPage(person(), server.url), ChatPage(person(), server.url)
    alice.set_number("longest-reply", "4")
    bob.set_number("longest-reply", "4")
    alice.fill_setting("#system-prompt textarea", "Your code word is OTTER-017.")
    alice.send("ALICE-CANARY")
    bob.send("BOB-CANARY")
    for tab, own, other in ((alice, "ALICE", "BOB"), (bob, "BOB", "ALICE")):
        tab.wait_for_replies(1)
        tab.page.reload()
        tab.wait_until(lambda tab=tab: tab.num_replies == 1)
        assert tab.questions == [f"{own}-CANARY"]
        assert f"{other}-CANARY" not in tab.page.content()
    assert "OTTER-017" not in bob.page.content()
    for tab, prompt in ((alice, "Your code word is OTTER-017."), (bob, "")):
        tab.open_settings()
        assert tab.page.input_value("#system-prompt textarea") == prompt


def test_br_63_markup_of_people_and_models_is_shown_and_never_run(
    parrot: tuple[Parrot, str], person: Any
) -> None:
    engine, url = parrot
    chat = ChatPage(person(), url)
    hostile = "\n\n".join(HOSTILE_LINES)
    chat.fill_setting("#system-prompt textarea", HOSTILE_LINES[2])
    chat.send(hostile)
    chat.wait_for_replies(1)
    for shown in (chat.questions[0], chat.replies[0]):
        assert [line for line in HOSTILE_LINES if line not in shown] == []
    assert chat.chats[0].startswith("<I am visible> std::vector<int>")
    chat.page.wait_for_timeout(300)
    assert chat.page.evaluate("window.__ran") is None
    assert engine.requests[-1].messages[-1].content == hostile
    assert engine.requests[-1].messages[0].content == HOSTILE_LINES[2]
    assert chat.errors == []


def test_br_62_what_is_copied_is_the_source(parrot: tuple[Parrot, str], person: Any) -> None:
    context = person()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat = ChatPage(context, parrot[1])
    source = "<b>bold</b> `a<b` &lt; [x](javascript:1) \\(x_1\\) costs $5\n\n    indented <i>"
    chat.ask(source)
    for button in chat.page.locator("#history button[title='Copy message']").all():
        chat.page.evaluate("navigator.clipboard.writeText('')")
        button.click(force=True)
        read = "navigator.clipboard.readText()"
        chat.wait_until(lambda read=read: chat.page.evaluate(read) == source)


def test_br_62_prices_are_text_and_formulas_are_formulas(
    parrot: tuple[Parrot, str], person: Any
) -> None:
    chat = ChatPage(person(), parrot[1])
    prices = "It cost $2,050,999 in May; now $88,120."
    reply = chat.ask(f"{prices}\n\n\\(x_1+y_2\\) and $$\\frac{{a_b}}{{c}}$$ and `$HOME`")
    assert prices in reply
    assert "$HOME" in reply
    assert chat.page.locator("#history .bot-row .katex").count() == 2
    assert chat.page.locator("#history .bot-row em").count() == 0


def test_code_of_every_language_is_shown(parrot: tuple[Parrot, str], person: Any) -> None:
    chat = ChatPage(person(), parrot[1])
    languages = ("python", "cpp", "__proto__", "mermaid", "html", "bash", "c", "rust", "php", "ts")
    languages += ("go", "java", "sql", "yaml", "json", "latex", "js", "css", "sh")
    reply = chat.ask("\n".join(f"```{name}\na_{name}<b>;\n```" for name in languages))
    assert [name for name in languages if f"a_{name}<b>;" not in reply] == []
    assert chat.errors == []


def test_br_30_the_ends_of_the_sliders_reach_the_engine(
    parrot: tuple[Parrot, str], person: Any
) -> None:
    engine, url = parrot
    chat = ChatPage(person(), url)
    for number in ("0", "2"):
        chat.set_number("temperature", number)
        chat.ask("Hello")
        assert engine.requests[-1].sampling.temperature == float(number)
    assert engine.requests[-1].sampling.seed is None


def test_shift_enter_makes_a_line_and_enter_sends(parrot: tuple[Parrot, str], person: Any) -> None:
    engine, url = parrot
    chat = ChatPage(person(), url)
    chat.page.fill("#question textarea", "one")
    chat.page.press("#question textarea", "Shift+Enter")
    chat.page.keyboard.type("two")
    chat.page.press("#question textarea", "Enter")
    chat.wait_for_replies(1)
    assert engine.requests[-1].messages[-1].content == "one\ntwo"
    assert chat.page.input_value("#question textarea") == ""


def test_chats_are_switched_and_deleted(parrot: tuple[Parrot, str], person: Any) -> None:
    chat = ChatPage(person(), parrot[1])
    chat.ask("First")
    chat.page.click("#new-chat")
    chat.wait_until(lambda: chat.num_replies == 0)
    chat.ask("Second")
    assert chat.chats == ["Second", "First"]
    chat.page.click("#chat-list label:has-text('First')")
    chat.wait_until(lambda: chat.questions == ["First"])
    chat.page.click("#delete-chat")
    chat.wait_until(lambda: chat.questions == ["Second"])
    assert (chat.chats, chat.errors) == (["Second"], [])


def test_br_66_a_reload_and_a_second_tab_go_on_with_the_answer(
    parrot: tuple[Parrot, str], person: Any
) -> None:
    context = person()
    first = ChatPage(context, parrot[1])
    first.send(HOLD)
    assert first.wait_for_live_text() == HOLD
    first.page.reload()
    assert first.wait_for_live_text() == HOLD
    second = ChatPage(context, parrot[1])
    assert second.wait_for_live_text() == HOLD
    second.send("Too early")
    second.wait_until(lambda: "still being written" in second.page.inner_text("#main"))
    assert second.page.input_value("#question textarea") == "Too early"
    second.page.click("#stop")
    for tab in (first, second):
        tab.wait_for_replies(1)
        assert "Stopped" in tab.replies[0]
    second.page.press("#question textarea", "Enter")
    second.wait_for_replies(2)
    assert not second.page.is_visible("#notice")


def test_br_65_a_hidden_tab_catches_up_when_it_is_seen_again(
    parrot: tuple[Parrot, str], person: Any
) -> None:
    context = person()
    first = ChatPage(context, parrot[1])
    first.ask("Once")
    second = ChatPage(context, parrot[1])
    turn = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    second.page.evaluate(turn % "true")
    second.page.fill("#question textarea", "a draft")
    first.ask("Twice")
    assert second.questions == ["Once"]
    second.page.evaluate(turn % "false")
    second.wait_for_replies(2)
    assert second.questions == ["Once", "Twice"]
    assert second.page.input_value("#question textarea") == "a draft"


@pytest.mark.parametrize("width", [390, 360])
def test_a_phone_scrolls_only_up_and_down(
    parrot: tuple[Parrot, str], person: Any, width: int
) -> None:
    chat = ChatPage(person(width, 844), parrot[1])
    chat.ask("x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n$$" + "z+" * 100 + "z$$")
    script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert chat.page.evaluate(script) == 0
    assert not chat.page.is_visible("#new-chat")
    chat.page.click("#side-toggle")
    chat.page.click("#new-chat")
    chat.wait_until(lambda: chat.num_replies == 0)
    assert chat.page.evaluate(script) == 0
