"""Dark and light, phones, languages, and what a screen reader gets. On a scripted server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import Site
from tests.e2e.scripted_server import Refusal
from ui.i18n import load_catalogue

_IS_DARK = "document.body.classList.contains('dark')"


@pytest.mark.parametrize("system", ["light", "dark"])
def test_dark_and_light_are_a_choice_that_is_kept(site: Site, system: str) -> None:
    context = site.person(color_scheme=system)
    chat = ChatPage(context, site.url)
    assert chat.page.evaluate(_IS_DARK) == (system == "dark")
    for choice, is_dark in (("Dark", True), ("Light", False)):
        chat.choose_more(choice)
        assert chat.page.evaluate(_IS_DARK) == is_dark
        chat.page.reload()
        chat.page.wait_for_function("window.hearth")
        chat.wait_until(lambda is_dark=is_dark: chat.page.evaluate(_IS_DARK) == is_dark)
        chat.page.emulate_media(color_scheme="dark")
        chat.page.emulate_media(color_scheme="light")
        chat.page.wait_for_timeout(50)
        assert chat.page.evaluate(_IS_DARK) == is_dark
    chat.choose_more("As the system")
    assert not chat.page.evaluate(_IS_DARK)
    chat.page.emulate_media(color_scheme="dark")
    chat.wait_until(lambda: chat.page.evaluate(_IS_DARK))
    chat.page.keyboard.press("Alt+Shift+D")
    assert not chat.page.evaluate(_IS_DARK)


@pytest.mark.parametrize("width", [390, 360])
def test_a_phone_scrolls_only_up_and_down(site: Site, width: int) -> None:
    site.server.add(
        "x" * 120, "y" * 300, "```\n" + "z" * 300 + "\n```\n\n| a | b |\n|-|-|\n| c | d |"
    )
    chat = site.visit(width=width, height=740)
    assert not chat.page.is_visible("#new-chat")
    chat.page.click("#side-toggle")
    chat.page.wait_for_timeout(250)
    assert chat.overflow_px() == 0
    chat.open("x")
    chat.wait_until(lambda: len(chat.questions) == 1)
    chat.wait_until(lambda: not chat.page.is_visible("#side"))
    assert chat.overflow_px() == 0
    site.server.set_engine("loading", "m" * 200)
    chat.wait_until(lambda: "loading" in chat.banner)
    chat.send("w" * 200)
    chat.wait_until(lambda: chat.notice != "")
    chat.page.click(".meter summary")
    assert chat.overflow_px() == 0
    chat.page.click("#side-toggle")
    chat.page.wait_for_timeout(250)
    chat.page.keyboard.press("Alt+Shift+L")
    chat.wait_until(lambda: not chat.page.is_visible("#side"))
    chat.page.click("#side-toggle")
    chat.open_settings()
    assert chat.overflow_px() == 0
    assert chat.errors == []


def test_a_dialog_is_whole_on_a_phone(site: Site) -> None:
    chat = site.visit(width=390, height=500)
    chat.page.keyboard.press("Control+/")
    box = chat.page.locator("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 8
    assert box["x"] + box["width"] <= 390 - 8
    assert box["y"] + box["height"] <= 500


def test_the_drawer_closes_by_a_touch_beside_it_and_stays_for_menus(site: Site) -> None:
    site.server.add("One", "q", "a")
    chat = site.visit(width=390, height=740)
    chat.page.click("#side-toggle")
    chat.choose("One", "Pin")
    chat.wait_until(lambda: chat.groups == ["Pinned"])
    assert chat.page.is_visible("#side")
    chat.page.mouse.click(380, 400)
    chat.wait_until(lambda: not chat.page.is_visible("#side"))


@pytest.mark.parametrize(
    ("locale", "language", "tag"),
    [
        ("en-US", "en", "en"),
        ("zh-CN", "zh", "zh-CN"),
        ("zh-TW", "zh", "zh-CN"),
        ("de-DE", "en", "en"),
    ],
)
def test_the_page_speaks_the_browser_s_language(
    site: Site, locale: str, language: str, tag: str
) -> None:
    texts = load_catalogue(language)
    site.server.add("One", "q", "a")
    chat = site.visit(locale=locale)
    for selector, key in (
        ("#new-chat", "side.new_chat"),  # Gradio's own
        ("#send", "composer.send"),
        ("#settings > button span >> nth=0", "settings.title"),
        ("#more", "side.more"),  # ours
        (".chat-list h3", "list.today"),
        (".hint span", "composer.hint"),
    ):
        assert chat.page.inner_text(selector) == texts[key]
    placeholder = chat.page.get_attribute("#question textarea", "placeholder")
    assert placeholder == texts["composer.placeholder"]
    assert chat.page.evaluate("document.documentElement.lang") == tag
    chat.open_settings()
    assert texts["settings.top_p"] in chat.page.inner_text("#top-p")
    assert texts["settings.seed_info"] in chat.page.inner_text("#seed")
    assert chat.errors == []


def test_a_refusal_is_told_in_chinese(site: Site) -> None:
    texts = load_catalogue("zh")
    chat = site.visit(locale="zh-CN")
    chat.is_failure_expected = True
    site.server.refuse("ask", Refusal(429, "queue_full", "120 are waiting."))
    chat.send("你好")
    chat.wait_until(lambda: chat.notice == texts["error.queue_full"])
    site.server.is_reachable = False
    chat.choose_more(texts["side.export_all_json"])
    chat.wait_until(lambda: chat.toasts == [texts["error.offline"]])
    assert chat.errors == []


def test_everything_that_can_be_pressed_has_a_name(site: Site) -> None:
    site.server.add("One", "q", "a")
    chat = site.visit()
    chat.open("One")
    chat.open_settings()
    chat.wait_until(lambda: chat.num_replies == 1)
    session = chat.page.context.new_cdp_session(chat.page)
    nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "link", "textbox", "combobox", "slider", "spinbutton", "menuitem", "tab")
    nameless = [
        json.dumps(node)
        for node in nodes
        if not node["ignored"]
        and node["role"]["value"] in roles
        and not node.get("name", {}).get("value", "").strip()
    ]
    assert nameless == []
    names = {(node["role"]["value"], node.get("name", {}).get("value")) for node in nodes}
    expected = {
        ("complementary", "Chats and settings"),
        ("navigation", "Your chats"),
        ("textbox", "Your message"),
        ("textbox", "Search chats"),
        ("button", "Actions for One"),
        ("slider", "range slider for Temperature"),
    }
    assert expected - names == set()
