"""Keys and their list. On a scripted server."""

from __future__ import annotations

from tests.e2e.chat_page import BOX, ChatPage
from tests.e2e.conftest import Site
from tests.e2e.scripted_server import HOLD

_FOCUSED = "document.activeElement.closest('[id]').id"


def test_keys_do_what_the_list_says(site: Site) -> None:
    for number in range(3):
        site.server.add(f"Chat {number}", f"q{number}", f"a{number}", age_s=number)
    chat = site.visit()
    press = chat.page.keyboard.press
    chat.open("Chat 1")
    press("Alt+Shift+ArrowDown")
    chat.wait_until(lambda: chat.questions == ["q2"])
    press("Alt+Shift+ArrowDown")
    press("Alt+Shift+ArrowUp")
    chat.wait_until(lambda: chat.questions == ["q1"])
    press("Alt+Shift+S")
    assert chat.page.evaluate(_FOCUSED) == "search"
    press("Alt+Shift+M")
    assert chat.page.evaluate(_FOCUSED) == "question"
    press("Alt+Shift+L")
    assert not chat.page.is_visible("#side")
    press("Alt+Shift+L")
    assert chat.page.is_visible("#side")
    press("Alt+Shift+R")
    chat.wait_until(lambda: chat.replies == ["Echo: q1"])
    press("Alt+Shift+N")
    chat.wait_until(lambda: chat.questions == [])
    assert chat.page.evaluate(_FOCUSED) == "question"
    assert chat.errors == []


def test_the_last_answer_is_copied(site: Site) -> None:
    site.server.add("One", "q", "**bold** & <b>")
    context = site.person(permissions=["clipboard-read", "clipboard-write"])
    chat = ChatPage(context, site.url)
    chat.page.keyboard.press("Alt+Shift+C")
    chat.wait_until(lambda: chat.toasts == ["There is no answer to copy."])
    chat.open("One")
    chat.wait_until(lambda: chat.num_replies == 1)
    chat.page.keyboard.press("Alt+Shift+C")
    chat.wait_until(lambda: "Copied" in chat.toasts)
    assert chat.page.evaluate("navigator.clipboard.readText()") == "**bold** & <b>"


def test_escape_stops_an_answer_but_not_from_a_dialog(site: Site) -> None:
    chat = site.visit()
    chat.send(HOLD)
    chat.wait_for_live_text()
    chat.page.keyboard.press("Control+/")
    chat.page.wait_for_selector("dialog")
    chat.page.keyboard.press("Escape")
    chat.page.wait_for_selector("dialog", state="detached")
    chat.page.click("#more")
    chat.page.keyboard.press("Escape")
    chat.page.wait_for_timeout(100)
    assert chat.is_answering
    chat.page.focus(BOX)
    chat.page.keyboard.press("Escape")
    chat.wait_for_replies(1)


def test_the_list_of_keys(site: Site) -> None:
    chat = site.visit()
    chat.page.keyboard.press("Shift+?")
    assert chat.draft == "?"  # where people write it is a character
    chat.page.evaluate("document.activeElement.blur()")
    chat.page.keyboard.press("Shift+?")
    assert "Alt\nShift\nN" in chat.page.inner_text("dialog .shortcut-list")
    chat.page.keyboard.press("Escape")
    chat.page.click(".hint button")
    assert chat.page.inner_text("dialog h2") == "Keyboard shortcuts"


def test_a_mac_names_its_own_keys(site: Site) -> None:
    context = site.person()
    context.add_init_script(
        "Object.defineProperty(navigator, 'platform', {get: () => 'MacIntel'});"
        "Object.defineProperty(navigator, 'userAgentData', {get: () => undefined});"
    )
    chat = ChatPage(context, site.url)
    chat.page.keyboard.press("Control+/")
    assert "⌥\n⇧\nN" in chat.page.inner_text("dialog .shortcut-list")
    chat.page.keyboard.press("Escape")
    # Option writes other characters there: the key's place counts.
    chat.page.evaluate(
        "window.dispatchEvent(new KeyboardEvent('keydown',"
        " {key: 'Ò', code: 'KeyL', altKey: true, shiftKey: true, cancelable: true}))"
    )
    assert not chat.page.is_visible("#side")
