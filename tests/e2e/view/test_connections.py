"""The conversation view when calls and connections get lost, in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Browser

from tests.e2e.view.harness import (
    CONVERSATION,
    SETTINGS,
    Frame,
    ScriptedServer,
    answer,
    opened_view,
    question,
)
from tests.e2e.view.steps import writing


def test_a_lost_connection_comes_back_and_shows_everything_once(
    browser: Browser, server: ScriptedServer
) -> None:
    with opened_view(browser, server) as view:
        writing(server)
        server.write("one ")
        view.wait_until(lambda: view.text("a-live").inner_text() == "one")
        for number in range(3):
            server.is_refusing = True
            server.drop()
            view.wait_for("state.connection === 'lost'")
            view.wait_until(lambda: "Connection lost" in view.page.inner_text(".waiting"))
            server.live_text += f"missed{number} "
            server.is_refusing = False
            view.wait_for("state.connection === 'open'")
            server.write(f"then{number} ")
        words = "one missed0 then0 missed1 then1 missed2 then2"
        view.wait_until(lambda: view.text("a-live").inner_text() == words)
        assert view.page.locator("article").count() == 2
        server.end()
        view.page.wait_for_selector(".is-answer:not(.is-live)")
        assert view.text("a-live").inner_text() == words
        view.errors.clear()  # the browser reports refused sockets


def test_an_ask_whose_reply_is_lost_is_repeated_with_the_same_id(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(question("q", "before"))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector("article")
        failures = iter([True, True, False])

        def lose(route: object) -> None:
            if next(failures):
                route.abort("connectionreset")  # type: ignore[attr-defined]
            else:
                route.continue_()  # type: ignore[attr-defined]

        view.page.route("**/api/chat/ask", lose)
        ids: list[str] = []
        view.page.on(
            "request",
            lambda request: (
                request.url.endswith("/ask") and ids.append(request.post_data_json["question_id"])
            ),
        )
        asked = view.page.evaluate("state.ask('hello')")
        view.errors.clear()  # the two that were cut
        problems = view.page.evaluate("window.problems")
    assert len(ids) == 3
    assert len(set(ids)) == 1
    assert re.fullmatch(r"[\w-]{16,40}", ids[0])
    assert asked["question_id"] == ids[0]
    assert server.calls_to("ask")[0]["settings"] == SETTINGS
    assert problems == []


def test_a_question_is_in_sight_while_it_is_sent(browser: Browser, server: ScriptedServer) -> None:
    def show_it(method: str, path: str, body: Frame) -> None:
        if path == "ask":
            view_seen.append(True)
            server.show(*server.messages(), question(body["question_id"], body["text"]))

    view_seen: list[bool] = []
    server.show(question("q", "before"), answer("a", "answer"))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector("article")
        view.page.route(
            "**/api/chat/ask", lambda route: (view.page.wait_for_timeout(300), route.continue_())
        )
        server.on_call = show_it
        view.page.evaluate("void state.ask('is it sent?')")
        view.page.wait_for_selector(".is-pending:has-text('is it sent?')")
        view.page.wait_for_selector("article:not(.is-pending):has-text('is it sent?')")
        view.wait_for("state.pending === null")
        assert view.page.locator("article:has-text('is it sent?')").count() == 1


def test_a_question_says_that_earlier_ones_are_summarised(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(question("q", "before"), answer("a", "yes"))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="a"]')
        view.page.evaluate("state.set('pending', {questionId: 'q2', text: 'hello'})")
        words = view.page.locator(".is-pending .state")
        assert words.inner_text() == "Sending…"
        frame = {"type": "answer", "conversation_id": CONVERSATION, "message_id": "a2"}
        server.emit({**frame, "is_whole": True, "text": "", "phase": "summarising"})
        words.filter(has_text="Summarising the earlier messages").wait_for()
        server.show(*server.messages(), question("q2", "hello"))
        view.page.wait_for_selector('[data-message-id="q2"]:not(.is-pending)')
        assert not view.page.evaluate("state.isAnswering")


def test_a_full_context_is_asked_about_and_goes_through_with_a_choice(
    browser: Browser, server: ScriptedServer
) -> None:
    error = {"code": "context_full", "message": "Full.", "used": 9, "max": 8, "choices": ["drop"]}
    server.show(question("q", "before"))
    server.refusals["ask"] = (409, {"error": error})
    with opened_view(browser, server) as view:
        view.page.wait_for_selector("article")
        assert view.page.evaluate("state.ask('hello')") is None
        assert view.page.evaluate("window.full.error.choices") == ["drop"]
        assert view.page.locator(".is-pending").count() == 0
        server.refusals.clear()
        assert view.page.evaluate("window.full.retry('drop')") is not None
        view.errors.clear()  # the browser reports the 409
    first, second = server.calls_to("ask")
    assert second == {**first, "on_full": "drop"}


def test_another_conversation_shows_nothing_of_the_last(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(question("q", "first"), answer("a", "of the first"))
    server.show(question("x", "second"), conversation_id="c-2")
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="a"]')
        view.page.evaluate("state.open('c-2')")
        view.page.wait_for_selector('[data-message-id="x"]')
        assert view.page.locator("article").count() == 1
        view.page.evaluate("state.open('c-1')")  # its texts are not sent again
        view.page.wait_for_selector('[data-message-id="a"]')
        assert view.text("a").inner_text() == "of the first"
        view.page.evaluate("state.open('gone')")
        view.page.wait_for_selector(".empty h2")
        assert view.page.evaluate("state.conversationId") is None
