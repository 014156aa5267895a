"""The page as a whole: what it loads, its address, and what lies above it. On a scripted server."""

from __future__ import annotations

from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import Site
from tests.e2e.scripted_server import HOLD

HOSTILE = (
    "<I am visible>",
    "std::vector<int> v; if (a<b && c>d)",
    "<script>window.__ran=1</script>",
    "<img src=x onerror=window.__ran=2>",
    "<style>*{display:none}</style>",
    "[x](javascript:window.__ran=3)",
    "${window.__ran=4} {{value}}",
)


def test_the_page_asks_its_own_server_only_and_gradio_for_nothing(site: Site) -> None:
    chat = site.visit()
    requests: list[str] = []
    chat.page.on("request", lambda request: requests.append(request.url))
    chat.ask("Hello")
    chat.open_settings()
    chat.set_number("temperature", "1")
    chat.new_chat()
    paths = {url.removeprefix(site.url).split("?")[0] for url in requests}
    assert [path for path in paths if path.startswith("/gradio_api")] == []
    assert "/api/chat/ask" in paths
    assert chat.errors == []


def test_a_chat_of_two_turns(site: Site) -> None:
    chat = site.visit()
    assert chat.ask("First") == "Echo: First"
    assert chat.ask("Second") == "Echo: Second"
    assert (chat.questions, chat.chats, chat.draft) == (["First", "Second"], ["First"], "")
    asked = site.server.bodies("POST", "ask")
    assert [body["conversation_id"] for body in asked] == [None, "conversation-0001"]
    assert asked[0]["question_id"] != asked[1]["question_id"]
    assert chat.errors == []


def test_the_address_names_the_open_chat(site: Site) -> None:
    one, other = site.server.add("One", "1", "one"), site.server.add("Other", "2", "two")
    chat = site.visit("/?__theme=dark")
    chat.open("One")
    assert chat.page.url == f"{site.url}/?__theme=dark#/c/{one}"
    chat.open("Other")
    chat.page.reload()
    chat.wait_until(lambda: chat.questions == ["2"])
    chat.page.go_back()
    chat.wait_until(lambda: chat.questions == ["1"])
    chat.page.go_back()
    chat.wait_until(lambda: chat.questions == [])
    chat.page.go_forward()
    chat.page.go_forward()
    chat.wait_until(lambda: chat.questions == ["2"])
    assert chat.page.url.endswith(f"#/c/{other}")
    assert chat.page.title() == "Other – Hearth"
    assert chat.errors == []


def test_a_new_chat_gets_its_address_with_its_first_answer(site: Site) -> None:
    chat = site.visit()
    chat.ask("Hello")
    assert chat.page.url.endswith("#/c/conversation-0001")
    chat.page.reload()
    chat.wait_until(lambda: chat.questions == ["Hello"])


def test_an_unknown_address_is_a_new_chat_with_a_word(site: Site) -> None:
    chat = site.visit("/#/c/someone-elses-chat")
    chat.wait_until(lambda: any("belongs to somebody else" in text for text in chat.toasts))
    assert chat.page.url.endswith("#/")
    assert chat.ask("Hello") == "Echo: Hello"


def test_br_63_titles_and_texts_are_shown_and_never_run(site: Site) -> None:
    for number, text in enumerate(HOSTILE):
        site.server.add(text, text, text, age_s=number)
    site.server.presets = {HOSTILE[3]: {"system_prompt": HOSTILE[2]}}
    chat = site.visit()
    chat.wait_until(lambda: len(chat.chats) == len(HOSTILE))
    assert tuple(chat.chats) == HOSTILE
    chat.choose(HOSTILE[3], "Delete")
    chat.wait_until(lambda: any(HOSTILE[3] in text for text in chat.toasts))
    chat.page.fill("#search input", "window")
    chat.page.wait_for_selector(".search-hit mark")
    chat.page.fill("#search input", HOSTILE[2])
    chat.wait_until(lambda: chat.page.inner_text(".list-head") == "3 results")
    assert chat.page.locator(".search-hit mark").first.inner_text() == HOSTILE[2]
    chat.page.wait_for_timeout(200)
    assert chat.page.evaluate("window.__ran") is None
    assert chat.page.is_visible("#composer")
    assert chat.errors == []


def test_br_66_a_reload_and_a_second_tab_go_on_with_the_answer(site: Site) -> None:
    context = site.person()
    first = ChatPage(context, site.url)
    first.send(HOLD)
    first.wait_for_live_text()
    first.page.reload()
    first.wait_for_live_text()
    assert first.is_answering
    second = ChatPage(context, site.url, "/#/c/conversation-0001")
    second.wait_for_live_text()
    second.stop()
    for tab in (first, second):
        tab.wait_for_replies(1)
    assert first.errors + second.errors == []
