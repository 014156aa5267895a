"""A connection that drops while an answer is written loses nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from playwright.sync_api import BrowserContext

from tests.e2e.chat_page import ChatPage
from tests.e2e.test_real_model import LONG, long_answer
from tests.server import RunningServer
from tests.tcp_proxy import tcp_proxy

# Taken in the page: Playwright itself is slow while it serves eight tabs.
SECONDS_TO_STOP = """async () => {
  const start = performance.now();
  document.querySelector("#stop").click();
  while (document.querySelector(".message.is-live")) await new Promise((f) => setTimeout(f, 10));
  return (performance.now() - start) / 1000;
}"""


def test_a_cut_connection_catches_up(
    server: RunningServer, person: Callable[..., BrowserContext]
) -> None:
    with tcp_proxy(server.port) as proxy:
        calm = ChatPage(person(), server.url)
        long_answer(calm)
        expected = calm.ask(LONG)

        chat = ChatPage(person(), proxy.url)
        chat.is_failure_expected = True
        long_answer(chat)
        chat.send(LONG)
        chat.wait_for_live_text()
        proxy.cut()
        chat.wait_until(lambda: "econnect" in chat.banner)
        chat.page.wait_for_timeout(3000)
        before = chat.live_text
        proxy.mend()
        chat.wait_until(lambda: chat.banner == "")
        chat.wait_for_replies(1, limit_s=240)
        assert chat.replies == [expected]
        assert expected.startswith(before[:60])


def test_a_question_sent_while_the_connection_is_cut_is_asked_once(
    server: RunningServer, person: Callable[..., BrowserContext]
) -> None:
    with tcp_proxy(server.port) as proxy:
        chat = ChatPage(person(), proxy.url)
        chat.is_failure_expected = True
        long_answer(chat, 8)
        proxy.cut()
        chat.send("Only once, please")
        chat.page.wait_for_timeout(1500)
        proxy.mend()
        chat.wait_for_replies(1, limit_s=60)
        assert chat.questions == ["Only once, please"]


def test_br_65_eight_tabs_stream_in_one_browser_and_stop_answers(
    server: RunningServer, person: Callable[..., BrowserContext]
) -> None:
    context = person()
    tabs = [ChatPage(context, server.url) for _ in range(8)]
    for number, tab in enumerate(tabs):
        long_answer(tab, 400)
        tab.send(f"{LONG} Chapter {number}.")
    for tab in tabs:
        tab.wait_for_live_text()
    dashboard = tabs[0].page
    dashboard.click('button[role=tab]:has-text("Dashboard")')
    dashboard.locator("[data-role=freshness]", has_text="Live").wait_for(timeout=5_000)
    dashboard.click('button[role=tab]:has-text("Chat")')
    for tab in tabs:
        assert tab.page.evaluate(SECONDS_TO_STOP) < 1.0
    assert [tab.errors for tab in tabs] == [[]] * 8


def test_a_conversation_of_300_messages_opens_within_two_seconds(
    server: RunningServer, person: Callable[..., BrowserContext]
) -> None:
    code = "Here it is:\n\n```python\nfor number in range(10):\n    print(number)\n```\n"
    turns = [f"## User\n\nQuestion {n}\n\n## Assistant\n\n{code}" for n in range(150)]
    context = person()
    chat = ChatPage(context, server.url)
    imported = context.request.post(
        f"{server.url}/api/chat/import",
        data=("# Long one\n\n" + "\n\n".join(turns)).encode(),
        headers={"Content-Type": "application/octet-stream"},
    )
    assert imported.json()["num_imported"] == 1
    chat.wait_until(lambda: chat.chats == ["Long one"])
    start_s = time.monotonic()
    chat.page.click(".chat-link")
    chat.page.wait_for_selector('.message:has-text("Question 149") >> visible=true')
    chat.page.wait_for_selector(".message:last-child pre .hljs-keyword >> visible=true")
    assert time.monotonic() - start_s < 2.0
    assert chat.errors == []
