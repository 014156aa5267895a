"""The conversation view for everybody: read aloud, by keyboard, in Chinese."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.e2e.view.harness import ScriptedServer, answer, opened_view, question
from tests.e2e.view.steps import writing


def test_finished_answers_are_read_aloud_once(browser: Browser, server: ScriptedServer) -> None:
    with opened_view(browser, server) as view:
        writing(server)
        server.write("The answer is 4.")
        view.wait_until(lambda: "is 4" in view.text("a-live").inner_text())
        log = view.page.locator('[role="log"]')
        assert log.get_attribute("aria-live") == "off"
        assert view.page.locator(".is-live").get_attribute("aria-busy") == "true"
        assert view.page.inner_text(".spoken") == ""
        server.end("stopped")
        view.page.wait_for_selector(".is-answer:not(.is-live)")
        assert view.page.locator(".spoken").text_content() == "Stopped. The answer is 4."


def test_every_button_has_a_name_and_is_reached_by_keyboard(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(question("q", "x"), answer("a", "```\ny\n```", variant_ids=["a", "b"]))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector(".code-block")
        unnamed = view.page.evaluate(
            "[...document.querySelectorAll('.conversation-view button')].filter("
            "(b) => !b.hidden && !(b.getAttribute('aria-label') || b.textContent.trim())).length"
        )
        reached: set[str] = set()
        for _ in range(30):
            view.page.keyboard.press("Tab")
            reached.add(str(view.page.evaluate("document.activeElement.dataset?.action ?? ''")))
    assert unnamed == 0
    assert {"copy", "edit", "regenerate", "delete", "later"} <= reached


def test_an_empty_conversation_welcomes(browser: Browser, server: ScriptedServer) -> None:
    with opened_view(browser, server, "/") as view:
        view.page.wait_for_selector(".empty h2")
        assert view.page.inner_text(".empty h2") == "What can I do for you?"


def test_the_view_speaks_chinese(browser: Browser, server: ScriptedServer) -> None:
    server.show(question("q", "x"), answer("a", "y"))
    with opened_view(browser, server, locale="zh-CN") as view:
        view.page.wait_for_selector(".figures")
        view.page.locator(".figures").click()
        text = view.page.inner_text(".foot:has(.details-panel)")
    assert "首个词元 3.6 秒" in text
    assert "有 1,498 个仍在缓存里" in text
