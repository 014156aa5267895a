"""Writing and sending: Enter, drafts, refusals, Stop. On a scripted server."""

from __future__ import annotations

import pytest

from tests.e2e.chat_page import BOX, ChatPage
from tests.e2e.conftest import Site
from tests.e2e.scripted_server import HOLD, Refusal

_KEY = """([type, given]) => {
    const options = {key: "Enter", code: "Enter", bubbles: true, cancelable: true, ...given};
    document.querySelector("#question textarea").dispatchEvent(new KeyboardEvent(type, options));
}"""


def test_shift_enter_makes_a_line_and_enter_sends(site: Site) -> None:
    chat = site.visit()
    chat.write("one")
    chat.page.press(BOX, "Shift+Enter")
    chat.page.keyboard.type("two")
    chat.page.press(BOX, "Enter")
    chat.wait_for_replies(1)
    assert site.server.bodies("POST", "ask")[0]["text"] == "one\ntwo"
    assert chat.draft == ""


def test_an_enter_that_ends_a_composition_sends_nothing(site: Site) -> None:
    chat = site.visit()
    session = chat.page.context.new_cdp_session(chat.page)
    chat.page.focus(BOX)
    session.send(
        "Input.imeSetComposition", {"text": "にほん", "selectionStart": 3, "selectionEnd": 3}
    )
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229}
    session.send("Input.dispatchKeyEvent", {"type": "keyDown", **enter})
    session.send("Input.insertText", {"text": "日本"})
    session.send("Input.dispatchKeyEvent", {"type": "keyUp", **enter})
    assert chat.draft == "日本"
    # Safari: the composition has ended before the key comes, which then has the code 229.
    chat.page.evaluate(_KEY, ["keydown", {"keyCode": 229}])
    chat.page.evaluate(_KEY, ["keypress", {"keyCode": 13}])
    # Others: an Enter that says so itself.
    chat.page.evaluate(_KEY, ["keydown", {"isComposing": True}])
    chat.page.evaluate(_KEY, ["keypress", {"isComposing": True}])
    chat.page.wait_for_timeout(200)
    assert site.server.bodies("POST", "ask") == []
    chat.page.press(BOX, "Enter")
    chat.wait_for_replies(1)
    assert chat.questions == ["日本"]


def test_each_chat_keeps_its_draft(site: Site) -> None:
    site.server.add("One", "q", "a", age_s=1)
    site.server.add("Two", "q", "a")
    chat = site.visit()
    chat.write("for a new one")
    chat.open("One")
    assert chat.draft == ""
    chat.write("for one\nin two lines")
    chat.open("Two")
    assert chat.draft == ""
    chat.page.reload()
    chat.open("One")
    chat.wait_until(lambda: chat.draft == "for one\nin two lines")
    chat.page.click("#new-chat")
    chat.wait_until(lambda: chat.draft == "for a new one")
    chat.ask("for a new one")
    chat.page.click("#new-chat")
    assert chat.draft == ""


def test_a_refused_text_comes_back_with_the_reason(site: Site) -> None:
    chat = site.visit()
    chat.is_failure_expected = True
    site.server.refuse("ask", Refusal(429, "queue_full", "120 are waiting. Try again in a minute."))
    chat.send("Please")
    chat.wait_until(lambda: chat.notice == "120 are waiting. Try again in a minute.")
    assert (chat.draft, chat.questions, chat.toasts) == ("Please", [], [])
    chat.page.press(BOX, "Enter")
    chat.wait_for_replies(1)
    assert (chat.notice, chat.draft, chat.errors) == ("", "", [])


def test_the_draft_outlives_a_reload_while_it_is_sent(site: Site) -> None:
    chat = site.visit()
    chat.is_failure_expected = True
    site.server.is_reachable = False
    chat.send("Do not lose me")
    chat.wait_until(lambda: chat.draft == "")
    chat.page.reload()
    chat.page.wait_for_function("window.hearth")
    chat.wait_until(lambda: chat.draft == "Do not lose me")


def test_what_is_typed_while_a_question_is_on_its_way_stays(site: Site) -> None:
    chat = site.visit()
    chat.is_failure_expected = True
    site.server.is_reachable = False
    chat.send("First")
    chat.wait_until(lambda: chat.draft == "")
    chat.write("Second")
    chat.page.press(BOX, "Enter")
    chat.wait_until(lambda: chat.notice == "Your last message is still on its way.")
    site.server.is_reachable = True
    chat.wait_for_replies(1)
    assert (chat.questions, chat.draft) == (["First"], "Second")
    chat.page.reload()
    chat.wait_until(lambda: chat.draft == "Second")


def test_br_60_stop_stands_in_for_send_and_typing_goes_on(site: Site) -> None:
    chat = site.visit()
    chat.send(HOLD)
    chat.wait_until(lambda: chat.is_answering)
    assert not chat.page.is_visible("#send")
    chat.send("Too early")
    chat.wait_until(lambda: "still being written" in chat.notice)
    assert chat.draft == "Too early"
    chat.stop()
    chat.wait_for_replies(1)
    chat.page.press(BOX, "Enter")
    chat.wait_for_replies(2)
    assert chat.questions == [HOLD, "Too early"]
    assert chat.notice == ""


def test_another_chat_can_be_asked_meanwhile(site: Site) -> None:
    chat = site.visit()
    chat.send(HOLD)
    chat.wait_until(lambda: chat.is_answering)
    chat.new_chat()
    assert not chat.is_answering
    assert chat.ask("Hello") == "Echo: Hello"
    assert chat.chats == ["Hello", HOLD]


@pytest.mark.parametrize("state", ["loading", "failed"])
def test_nothing_is_sent_while_there_is_no_model(site: Site, state: str) -> None:
    site.server.set_engine(state, "Reading tiny.gguf.")
    chat = site.visit(is_ready=False)
    chat.wait_until(lambda: "Reading tiny.gguf." in chat.banner)
    assert chat.page.is_disabled("#send")
    assert "not ready yet" in str(chat.page.get_attribute("#send", "title"))
    chat.send("Hello")
    chat.wait_until(lambda: "not ready yet" in chat.notice)
    assert (chat.draft, site.server.bodies("POST", "ask")) == ("Hello", [])
    site.server.set_engine("ready")
    chat.wait_until(lambda: chat.page.is_enabled("#send"))
    chat.page.click("#send")
    chat.wait_for_replies(1)
    assert chat.errors == []


def test_an_empty_text_is_not_sent(site: Site) -> None:
    chat = site.visit()
    chat.send(" \n ")
    chat.page.click("#send")
    chat.page.wait_for_timeout(100)
    assert site.server.bodies("POST", "ask") == []


def test_two_tabs_do_not_mix_their_drafts(site: Site) -> None:
    context = site.person()
    first, second = ChatPage(context, site.url), ChatPage(context, site.url)
    first.write("mine")
    second.write("yours")
    first.page.reload()
    first.wait_until(lambda: first.draft == "mine")
    assert second.draft == "yours"
