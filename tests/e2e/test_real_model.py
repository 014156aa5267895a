"""The chat page on the real server with the bundled model: what people rely on."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.e2e.chat_page import ChatPage
from tests.server import RunningServer, running_server

LONG = "Write a long story about a lighthouse keeper and the sea. Go into every detail."
Visit = Callable[..., BrowserContext]


def long_answer(chat: ChatPage, num_tokens: int = 120) -> None:
    """Settings under which the same question always gets the same long answer."""
    chat.set_number("temperature", "0")
    chat.set_number("max-tokens", str(num_tokens))


def texts_of(context: BrowserContext, url: str) -> list[str]:
    """What the server has of this visitor's newest conversation, as written by the model."""
    entries = context.request.get(f"{url}/api/chat/conversations").json()["entries"]
    found = context.request.get(f"{url}/api/chat/conversations/{entries[0]['conversation_id']}")
    return [message["text"] for message in found.json()["messages"]]


def test_three_turns_keep_what_was_said_warm(server: RunningServer, person: Visit) -> None:
    chat = ChatPage(person(), server.url)
    long_answer(chat, 40)
    for turn, question in enumerate(("Name a colour.", "Another one.", "And a third."), start=1):
        assert chat.ask(question)
        foot = chat.page.locator(".message.is-answer .foot").nth(turn - 1).inner_text()
        assert "tokens/s" in foot
    facts = chat.page.locator(".message.is-answer").last
    facts.locator(".figures").click()
    assert "were still warm" in facts.inner_text()
    assert chat.errors == []


def test_an_answer_is_the_same_after_a_reload_at_two_seconds(
    server: RunningServer, person: Visit
) -> None:
    calm = ChatPage(person(), server.url)
    long_answer(calm)
    expected = calm.ask(LONG)

    chat = ChatPage(person(), server.url)
    long_answer(chat)
    chat.send(LONG)
    chat.wait_for_live_text()
    chat.page.wait_for_timeout(2000)
    seen = chat.live_text
    chat.page.reload()
    chat.wait_until(lambda: chat.is_answering)
    assert chat.wait_for_live_text().startswith(seen[:20])
    chat.wait_for_replies(1, limit_s=240)
    assert chat.replies == [expected]
    assert chat.page.input_value("#question textarea") == ""


def test_regenerate_edit_and_continue_make_branches(server: RunningServer, person: Visit) -> None:
    chat = ChatPage(person(), server.url)
    long_answer(chat, 24)
    first = chat.ask("Tell me about rivers.")
    chat.set_number("temperature", "1.5")
    answer = chat.page.locator(".message.is-answer").last
    answer.get_by_role("button", name="Answer again").click()
    chat.wait_until(lambda: not chat.is_answering and "2 / 2" in answer_foot(chat))
    second = chat.replies[0]
    chat.page.locator('.message.is-answer [data-action="earlier"]').click()
    chat.wait_until(lambda: chat.replies == [first])
    chat.page.locator('.message.is-answer [data-action="later"]').click()
    chat.wait_until(lambda: chat.replies == [second])
    chat.page.locator('.message.is-answer [data-action="continue"]').click()
    chat.wait_until(lambda: not chat.is_answering and len(chat.replies[0]) > len(second))
    assert chat.replies[0].startswith(second[:20])
    assert chat.errors == []


def answer_foot(chat: ChatPage) -> str:
    return chat.page.locator(".message.is-answer .foot").last.inner_text()


class Canary(NamedTuple):
    word: str
    chat: ChatPage
    heard: list[str]  # all that came from the server


def listen(page: Page, heard: list[str]) -> None:
    page.on("websocket", lambda socket: socket.on("framereceived", lambda text: heard.append(text)))
    page.on("response", lambda response: _keep_body(response, heard))


def _keep_body(response: Any, heard: list[str]) -> None:
    if response.request.resource_type in {"fetch", "xhr", "document"}:
        try:
            heard.append(response.text())
        except Exception:  # a redirect or an aborted call has no body
            heard.append("")


def test_br_59_five_people_streaming_never_meet(
    server: RunningServer, person: Visit, tmp_path: Path
) -> None:
    words = ("OTTER-017", "HERON-482", "LYNX-905", "BADGER-631", "PLOVER-274")
    contexts = [person() for _ in range(4)]
    contexts.append(contexts[0])  # two of them share a profile: one person in two tabs
    canaries = []
    for word, context in zip(words, contexts, strict=True):
        chat, heard = ChatPage(context, server.url), []
        listen(chat.page, heard)
        chat.page.reload()  # so that everything is heard
        chat.wait_until(lambda chat=chat: chat.page.is_enabled("#send"))
        canaries.append(Canary(word, chat, heard))
    for word, chat, _ in canaries:
        long_answer(chat, 60)
        chat.fill_setting("#system-prompt textarea", f"The code word is {word}. Begin with it.")
        chat.send(f"Say {word} and tell me about it.")
    canaries[1].chat.set_number("temperature", "1")  # in the middle of everything
    for _, chat, _ in canaries:
        chat.wait_for_replies(1, limit_s=180)

    own_words = [{words[0], words[4]}, {words[1]}, {words[2]}, {words[3]}, {words[0], words[4]}]
    for canary, own in zip(canaries, own_words, strict=True):
        shown = canary.chat.page.content() + "".join(map(str, canary.heard))
        assert canary.word in shown
        assert [word for word in words if word in shown and word not in own] == []
        assert canary.chat.errors == []
    newcomer = ChatPage(person(), server.url)
    shown = newcomer.page.content() + newcomer.page.request.get(f"{server.url}/config").text()
    assert [word for word in words if word in shown] == []
    assert newcomer.chats == []
    files = [path for path in Path(tempfile.gettempdir(), "gradio").rglob("*") if path.is_file()]
    assert [
        path for path in files if any(word.encode() in path.read_bytes() for word in words)
    ] == []


@pytest.fixture(scope="module")
def own_server() -> Iterator[RunningServer]:
    """A server that this file may hurt."""
    options = ["--max-model-len", "2048", "--kv-cache-memory-bytes", str(128 * 1024**2)]
    with running_server(options) as server:
        server.wait_until_ready()
        yield server


def test_a_killed_engine_is_told_and_answers_within_30_s(
    own_server: RunningServer, person: Visit
) -> None:
    chat = ChatPage(person(), own_server.url)
    long_answer(chat, 400)
    chat.send(LONG)
    chat.wait_for_live_text()
    os.kill(own_server.engine_pid(), signal.SIGKILL)
    chat.wait_until(lambda: "starting again" in chat.banner)
    chat.wait_for_replies(1)
    assert "restarted" in answer_foot(chat)
    assert chat.replies[0] != ""
    long_answer(chat, 8)
    chat.send("Are you there?")
    chat.wait_for_replies(2, limit_s=30)
    chat.wait_until(lambda: chat.banner == "")
    assert chat.replies[1] != ""


def test_a_killed_server_has_the_partial_answer_when_it_is_back(person: Visit) -> None:
    with running_server() as server:
        server.wait_until_ready()
        context = person()
        chat = ChatPage(context, server.url)
        chat.is_failure_expected = True
        long_answer(chat, 400)
        chat.send(LONG)
        chat.wait_for_live_text()
        chat.page.wait_for_timeout(3000)
        seen = chat.live_text
        chat.write("A draft that must stay")
        server.kill()
        chat.wait_until(lambda: chat.banner != "")
        with running_server(port=server.port, data_dir=server.data_dir) as again:
            again.wait_until_ready()
            chat.wait_until(lambda: chat.num_replies == 1 and chat.banner == "")
            assert chat.replies[0].startswith(seen[:20])
            assert len(chat.replies[0]) >= len(seen) - 80  # what the last half second wrote
            assert "server was restarted" in answer_foot(chat)
            assert chat.draft == "A draft that must stay"
            kept = chat.replies[0]
            long_answer(chat, 16)
            chat.page.locator('.message.is-answer [data-action="continue"]').click()
            chat.wait_until(lambda: chat.num_replies == 1 and len(chat.replies[0]) > len(kept))
            assert texts_of(context, again.url)[1].startswith(kept[:40])
            assert again.metric("prefix_cache_hits_total") >= 0
