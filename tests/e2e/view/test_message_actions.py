"""What can be done with a message and what is said of it, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser

from tests.e2e.view.harness import (
    FACTS,
    SETTINGS,
    Frame,
    ScriptedServer,
    answer,
    opened_view,
    question,
)


def test_copy_gives_the_source_over_plain_http(browser: Browser, server: ScriptedServer) -> None:
    source = "It cost $5 and **$6**: \\(x_1\\) <b> `$HOME`\n\n```py\nprint(1)\n```\n"
    server.show(question("q", "what?"), answer("a", f"<think>hm</think>\n\n{source}"))
    script = """document.addEventListener("copy", () =>
      (window.copied = document.activeElement.value), true)"""
    with opened_view(browser, server) as view:
        view.page.context.add_init_script(script)
        view.page.goto(view.url.replace("127.0.0.1", "team.example") + "/?c=c-1")
        view.page.wait_for_selector(".code-block")
        assert view.page.evaluate("[isSecureContext, navigator.clipboard ?? null]") == [False, None]
        view.press("a", "copy")
        copied = view.page.evaluate("window.copied")
        view.page.click('button[data-copies="code"]')
        copied_code = view.page.evaluate("window.copied")
        view.page.wait_for_selector(".code-head button:has-text('Copied')")
        assert view.page.locator("textarea").count() == 0
        view.errors.clear()  # this name is another host to the harness
    assert copied == source
    assert copied_code == "print(1)"


def test_copy_where_the_browser_has_a_clipboard(browser: Browser, server: ScriptedServer) -> None:
    server.show(question("q", "what <b>?"))
    permissions = ["clipboard-read", "clipboard-write"]
    with opened_view(browser, server, permissions=permissions) as view:
        view.page.wait_for_selector("article")
        view.press("q", "copy")
        assert view.page.evaluate("navigator.clipboard.readText()") == "what <b>?"


def test_variants_are_walked_with_the_arrows(browser: Browser, server: ScriptedServer) -> None:
    variants = ["a1", "a2", "a3"]
    server.show(question("q", "x"), answer("a2", "two", variant_ids=variants))

    def select(method: str, path: str, body: Frame) -> None:
        name = path.split("/")[1]
        server.show(question("q", "x"), answer(name, f"is {name}", variant_ids=variants))

    server.on_call = select
    with opened_view(browser, server) as view:
        view.page.wait_for_selector(".variant-place:has-text('2 / 3')")
        view.page.locator('[data-action="later"]').focus()
        view.page.keyboard.press("Enter")
        view.page.wait_for_selector(".variant-place:has-text('3 / 3')")
        assert view.page.locator('[data-action="later"]').is_disabled()
        assert view.page.evaluate("document.activeElement.dataset.action") == "earlier"
        view.page.keyboard.press("Enter")
        view.page.wait_for_selector(".variant-place:has-text('2 / 3')")
    assert [path for _, path, _ in server.calls] == ["messages/a3/select", "messages/a2/select"]


def test_delete_can_be_undone(browser: Browser, server: ScriptedServer) -> None:
    server.show(question("q", "x"), answer("a", "y"))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="a"]')
        view.press("a", "delete")
        view.page.click("text=Undo")
        view.wait_until(lambda: len(server.calls) == 2)
    calls = [(method, path) for method, path, _ in server.calls]
    assert calls == [("DELETE", "messages/a"), ("POST", "messages/a/restore")]


@pytest.mark.parametrize(
    ("fields", "words", "can_continue"),
    [
        ({"state": "stopped"}, "Stopped", True),
        (
            {"state": "failed", "facts": {**FACTS, "error": "No memory."}},
            "Failed: No memory.",
            True,
        ),
        ({"state": "interrupted", "facts": None}, "The server was restarted", True),
        ({"facts": {**FACTS, "finish_reason": "length"}}, "The longest reply was reached", True),
        ({}, None, False),
    ],
)
def test_an_answer_says_how_it_ended(
    browser: Browser, server: ScriptedServer, fields: Frame, words: str | None, can_continue: bool
) -> None:
    server.show(question("q", "x"), answer("a", "y", **fields))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="a"] [data-action="regenerate"]')
        state = view.message("a").locator(".state")
        assert state.count() == (words is not None)
        if words is not None:
            assert state.inner_text().startswith(words)
        button = view.message("a").locator('[data-action="continue"]')
        assert button.count() == can_continue
        if can_continue:
            view.press("a", "continue")
            view.wait_until(lambda: server.calls_to("a/continue") == [{"settings": SETTINGS}])


def test_regenerate_stays_away_while_an_answer_is_written(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(question("q", "x"), answer("a", "y"), question("q2", "z"))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="q2"] [data-action="regenerate"]')
        assert view.message("q").locator('[data-action="regenerate"]').count() == 0
        view.press("a", "regenerate")
        view.wait_until(lambda: len(server.calls_to("a/regenerate")) == 1)
        server.begin()
        view.page.wait_for_selector(".is-busy")
        assert not view.message("a").locator('[data-action="regenerate"]').is_visible()
        assert view.message("a").locator('[data-action="copy"]').count() == 1


def test_editing_a_question_makes_a_branch(browser: Browser, server: ScriptedServer) -> None:
    server.show(question("q", "first"), answer("a", "y"), question("q2", "what?"), answer("b", "z"))
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="q2"]')
        view.press("q2", "edit")
        area = view.message("q2").locator("textarea")
        area.wait_for()
        assert "new branch" in view.page.inner_text(".edit-box p")
        box, save = area.bounding_box(), view.page.locator(".edit-box .primary").bounding_box()
        assert box is not None
        assert save is not None
        assert save["y"] >= box["y"] + box["height"] + 4
        assert area.evaluate("area => getComputedStyle(area).outlineStyle") == "none"
        area.press("Escape")
        assert view.page.locator(".edit-box").count() == 0
        assert view.page.evaluate("document.activeElement.dataset.action") == "edit"
        view.press("q2", "edit")
        area.fill("ni hao")
        composing = """(area) => area.dispatchEvent(new KeyboardEvent("keydown",
          { key: "Enter", keyCode: 229, isComposing: true, bubbles: true, cancelable: true }))"""
        area.evaluate(composing)
        area.press("Shift+Enter")
        area.press("Control+End")
        area.type("second line")
        assert server.calls_to("ask") == []
        area.press("Enter")
        view.wait_until(lambda: len(server.calls_to("ask")) == 1)
        view.wait_until(lambda: view.page.locator(".edit-box").count() == 0)
    asked = server.calls_to("ask")[0]
    assert asked["parent_id"] == "a"
    assert asked["text"] == "ni hao\nsecond line"


def test_editing_an_answer_keeps_a_variant_and_a_refusal_keeps_the_text(
    browser: Browser, server: ScriptedServer
) -> None:
    server.show(question("q", "first"), answer("a", "the **answer**"))
    refusal = {"error": {"code": "conflict", "message": "An answer is being written."}}
    server.refusals["a/edit"] = (409, refusal)
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="a"]')
        view.press("a", "edit")
        area = view.message("a").locator("textarea")
        assert area.input_value() == "the **answer**"
        area.fill("mine")
        area.press("Enter")
        area.press("Control+Enter")
        view.wait_until(lambda: view.page.evaluate("window.problems.length") == 1)
        assert area.input_value() == "mine\n"
        server.refusals.clear()
        area.press("Control+Enter")
        view.wait_until(lambda: view.page.locator(".edit-box").count() == 0)
        view.errors.clear()  # the browser reports the 409
    assert server.calls_to("a/edit")[-1] == {"text": "mine\n"}


def test_figures_open_where_the_time_went(browser: Browser, server: ScriptedServer) -> None:
    server.show(question("q", "x"), answer("a", "y"))
    with opened_view(browser, server) as view:
        figures = view.page.locator(".figures")
        figures.wait_for()
        assert figures.inner_text() == (
            "3.6 s to the first token · 42.1 tokens/s · 512 tokens · 1,498 cached"
        )
        figures.click()
        reasons = view.page.locator(".details-panel li").all_inner_texts()
        legend = view.page.locator(".time-legend > div").all_inner_texts()
        assert figures.get_attribute("aria-expanded") == "true"
        figures.click()
        assert view.page.locator(".details-panel").count() == 0
    assert reasons == [
        "Waited 3.1 s: 12 requests were ahead, and 8 were being answered.",
        "1,498 of 2,310 prompt tokens were still warm; 812 had to be read.",
        "Shared each step with 7.3 other requests on average.",
        "Had to step aside 2 times because memory ran short.",
        "The chat outgrew the length that the model was first trained for: "
        "4,096 tokens were computed once more.",
    ]
    assert [" ".join(line.split()) for line in legend] == [
        "Waiting 3.1 s",
        "Reading the prompt 0.5 s",
        "Writing 12 s",
    ]


def test_what_was_not_measured_is_left_out(browser: Browser, server: ScriptedServer) -> None:
    nothing = {**dict.fromkeys(FACTS), "finish_reason": "abort"}
    some = {**nothing, "num_output_tokens": 1, "queued_s": 0.0, "num_cached_tokens": 0}
    server.show(
        question("q", "x"), answer("a", "y", facts=nothing),
        question("r", "x"), answer("b", "y", facts=some),
    )  # fmt: skip
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="b"] .figures')
        for name in ("a", "b"):
            view.message(name).locator(".figures").click()
        texts = [view.message(name).locator(".foot").inner_text() for name in ("a", "b")]
    assert "Nothing was measured." in texts[0]
    assert "1 token\n" in texts[1]
    assert "It did not have to wait." in texts[1]
    for text in texts:
        assert not re.search("null|undefined|NaN", text)


def test_a_cut_is_a_divider_with_its_summary_on_a_click(
    browser: Browser, server: ScriptedServer
) -> None:
    cut = {"first_message_id": "q", "num_left_out": 12, "summary": ""}
    told = {**cut, "num_left_out": 1, "summary": "They *met*."}
    server.show(question("q", "x", cut=cut), answer("a", "y"), question("r", "z", cut=told))
    with opened_view(browser, server) as view:
        dividers = view.page.locator(".cut")
        view.page.wait_for_selector('[data-message-id="r"] .cut')
        assert dividers.nth(0).inner_text() == (
            "12 earlier messages are not sent to the model any more"
        )
        assert "They *met*." not in dividers.nth(1).inner_text()
        dividers.nth(1).locator("summary").click()
        assert "They *met*." in dividers.nth(1).inner_text()
