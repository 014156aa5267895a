"""The reader's place in a conversation, in a real browser."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.e2e.view.harness import ScriptedServer, opened_view, question
from tests.e2e.view.steps import long_chat, writing


def test_scrolling_up_stops_following_at_once(browser: Browser, server: ScriptedServer) -> None:
    server.show(*long_chat(20))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="m19"]')
        server.begin()
        for _ in range(10):
            server.write("line\n\n")
        view.wait_until(lambda: "line" in view.text("a-live").inner_text())
        view.page.wait_for_timeout(200)
        assert view.distance_px < 2
        view.page.mouse.move(500, 400)
        view.page.mouse.wheel(0, -12)
        view.page.wait_for_timeout(150)
        place = view.page.evaluate("document.querySelector('.scroller').scrollTop")
        for _ in range(20):
            server.write("more\n\n")
            view.page.wait_for_timeout(20)
        view.page.wait_for_timeout(300)
        assert view.page.evaluate("document.querySelector('.scroller').scrollTop") == place
        button = view.page.locator(".to-end.is-shown")
        button.click()
        assert view.distance_px < 2
        server.write("followed again\n\n" * 5)
        view.wait_until(lambda: "followed again" in view.text("a-live").inner_text())
        view.page.wait_for_timeout(150)
        assert view.distance_px < 2


def test_following_goes_on_after_the_thinking(browser: Browser, server: ScriptedServer) -> None:
    server.show(*long_chat(10))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="m9"]')
        server.begin()
        server.write("<think>" + "thought\n\n" * 40)
        view.page.wait_for_selector("details.is-moving")
        view.page.locator("details.is-moving summary").click()
        view.page.evaluate("view.scroll.toEnd()")
        server.write("</think>" + "said\n\n" * 40)
        view.wait_until(lambda: "said" in view.text("a-live").inner_text())
        view.page.wait_for_timeout(200)
        assert view.distance_px < 2


def test_a_selection_survives_what_is_written_after_it(
    browser: Browser, server: ScriptedServer
) -> None:
    with opened_view(browser, server) as view:
        writing(server)
        server.write("first paragraph\n\nsecond unfinished")
        view.wait_until(lambda: "unfinished" in view.text("a-live").inner_text())
        view.page.evaluate(
            "document.getSelection().selectAllChildren("
            "document.querySelector('.is-live .markdown'))"
        )
        for _ in range(10):
            server.write(" more")
            view.page.wait_for_timeout(60)
        view.wait_until(lambda: view.text("a-live").inner_text().count("more") == 10)
        selected = view.page.evaluate("document.getSelection().toString()")
    assert selected.startswith("first paragraph")
    assert "second unfinished" in selected


def test_earlier_messages_come_when_asked_for_and_the_place_is_kept(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(*long_chat(100))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="m99"]')
        assert view.page.locator("article").count() == 40
        assert view.page.inner_text(".earlier") == "Show earlier messages (60)"
        view.page.mouse.move(500, 400)
        view.page.evaluate(
            "view.scroll.follow(false); document.querySelector('.scroller').scrollTop = 300"
        )
        view.page.wait_for_function("view.views.size === 80")
        view.page.wait_for_timeout(200)
        first = view.message("m60").bounding_box()
        assert first is not None
        assert -600 < first["y"] < 100  # where it was, with 40 more above it
        view.page.evaluate("document.querySelector('.scroller').scrollTop = 0")
        view.page.wait_for_function("view.views.size === 100")
        assert view.page.locator(".earlier:visible").count() == 0
        server.show(*server.messages(), question("new", "Still all there?"))
        view.page.wait_for_selector('[data-message-id="new"]')
        ids = view.page.locator("article").evaluate_all(
            "(all) => all.map((e) => e.dataset.messageId)"
        )
    assert ids == [f"m{number}" for number in range(100)] + ["new"]


def test_a_change_among_earlier_messages_arrives_too(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(*long_chat(100))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="m99"]')
        view.page.evaluate("state.loadEarlier()")
        view.page.wait_for_function("view.views.size === 80")
        server.show(*[message for message in server.messages() if message["message_id"] != "m30"])
        view.wait_until(lambda: view.message("m30").count() == 0)
        assert view.page.locator("article").count() == 80
        assert view.page.evaluate("state.conversation.num_earlier") == 19


def test_only_changed_messages_are_drawn_again(browser: Browser, server: ScriptedServer) -> None:
    server.show(*long_chat(10))
    with opened_view(browser, server) as view:
        view.wait_for("view.views.size === 10 && view.drawing.jobs.length === 0")
        view.page.evaluate(
            """() => {
              window.changed = new Set();
              new MutationObserver((all) => all.forEach(({ target }) => {
                const element = target.nodeType === 1 ? target : target.parentElement;
                const article = element.closest("article");
                if (article) window.changed.add(article.dataset.messageId);
              })).observe(document.querySelector(".messages"), {
                subtree: true, childList: true, characterData: true });
            }"""
        )
        server.change("m3", text="Another text")
        view.wait_until(lambda: view.text("m3").inner_text() == "Another text")
        assert view.page.evaluate("[...window.changed]") == ["m3"]


def test_a_searched_message_is_brought_into_sight(browser: Browser, server: ScriptedServer) -> None:
    server.show(*long_chat(100))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="m99"]')
        assert view.page.evaluate("view.reveal('m5')")
        box = view.message("m5").bounding_box()
        assert not view.page.evaluate("view.reveal('not there')")
    assert box is not None
    assert 0 <= box["y"] < 800
