"""A connection that drops while an answer is written loses nothing of it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext

from tests.e2e.chat_page import ChatPage
from tests.e2e.test_real_model import LONG, long_answer
from tests.server import RunningServer
from tests.tcp_proxy import tcp_proxy


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
