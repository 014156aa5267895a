"""The context meter, and the choice when a conversation no longer fits. On a scripted server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.chat_page import BOX
from tests.e2e.conftest import Site
from tests.e2e.scripted_frames import MAX_CONTEXT, answer_frame, message_frame
from tests.e2e.scripted_server import Refusal


def context_full(*choices: str, num_left_out: int = 6) -> Refusal:
    numbers: dict[str, Any] = {"used": 5000, "max": MAX_CONTEXT, "num_left_out": num_left_out}
    return Refusal(409, "context_full", "Full.", choices=list(choices), **numbers)


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (400, "400 of 4,096 tokens of context"),
        (3276, "3,276 of 4,096 tokens of context"),
        (3277, "Filling up: 3,277 of 4,096 tokens of context"),
        (3892, "Almost full: 3,892 of 4,096 tokens of context"),
        (4097, "Too long: 4,097 of 4,096 tokens of context"),
    ],
)
def test_the_meter_warns_in_words(site: Site, used: int, text: str) -> None:
    key = site.server.add("One", "q", "a")
    chat = site.visit()
    assert chat.meter == "4,096 tokens of context"
    chat.open("One")
    site.server.set_context(key, used)
    chat.wait_until(lambda: chat.meter == text)


def test_the_meter_counts_a_long_draft(site: Site) -> None:
    site.server.add("One", "q", "a")
    chat = site.visit()
    chat.open("One")
    chat.page.locator(BOX).press_sequentially("short")
    chat.page.wait_for_timeout(800)
    assert site.server.bodies("POST", "count") == []
    chat.write("long " * 2000)
    chat.page.keyboard.type("and more")
    chat.wait_until(
        lambda: (
            chat.meter == "Filling up: 2,902 of 4,096 tokens of context"
            or chat.meter == "2,902 of 4,096 tokens of context"
        )
    )
    assert len(site.server.bodies("POST", "count")) == 1
    chat.page.click(".meter summary")
    figures = chat.page.inner_text(".meter dl").split("\n")
    assert [line for line in figures if line] == [
        *("This chat", "400 tokens", "What you are writing", "2,502 tokens"),
        *("Longest reply", "512 tokens", "Still free", "682 tokens"),
    ]
    chat.page.keyboard.press("Escape")
    assert not chat.page.is_visible(".meter dl")
    chat.write("")
    chat.wait_until(lambda: chat.meter == "400 of 4,096 tokens of context")


def test_what_the_server_does_not_know_is_counted(site: Site) -> None:
    key = site.server.add("Edited", "q", "a")
    chat = site.visit()
    chat.open("Edited")
    chat.wait_until(lambda: chat.meter == "400 of 4,096 tokens of context")
    site.server.set_context(key, 500)
    chat.wait_until(lambda: chat.meter == "500 of 4,096 tokens of context")
    assert site.server.bodies("POST", "count") == []
    site.server.set_context(key, None)
    chat.wait_until(lambda: chat.meter == "400 of 4,096 tokens of context")
    chat.page.click(".meter summary")
    assert "This chat\n400 tokens" in chat.page.inner_text(".meter dl").replace("\n\n", "\n")
    site.server.set_context(key, 600)
    chat.wait_until(lambda: chat.meter == "600 of 4,096 tokens of context")
    assert len(site.server.bodies("POST", "count")) == 1


@pytest.mark.parametrize(
    ("button", "on_full"),
    [("Leave out the oldest 6 messages", "drop"), ("Summarise them", "summarise")],
)
def test_br_68_a_full_context_is_a_choice(site: Site, button: str, on_full: str) -> None:
    site.server.add("One", "q", "a")
    site.server.refuse("ask", context_full("drop", "summarise"))
    chat = site.visit()
    chat.is_failure_expected = True
    chat.open("One")
    chat.send("One more")
    dialog = chat.page.locator("dialog")
    dialog.wait_for()
    assert "would need 5,000 tokens; the model's context holds 4,096" in dialog.inner_text()
    assert chat.draft == "One more"
    chat.page.click(f"dialog button:has-text('{button}')")
    chat.wait_for_replies(2)
    first, second = site.server.bodies("POST", "ask")
    assert second == first | {"on_full": on_full}
    assert (chat.draft, chat.questions, chat.errors) == ("", ["q", "One more"], [])


def test_br_68_a_choice_that_is_cancelled_keeps_the_text(site: Site) -> None:
    site.server.refuse("ask", context_full("drop"))
    chat = site.visit()
    chat.is_failure_expected = True
    chat.send("One more")
    chat.page.wait_for_selector("dialog")
    assert chat.page.locator("dialog button").all_inner_texts() == [
        *("Cancel", "Leave out the oldest 6 messages"),
    ]
    for _ in range(5):  # the focus stays inside
        chat.page.keyboard.press("Tab")
        assert chat.page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    chat.page.keyboard.press("Escape")
    chat.page.wait_for_selector("dialog", state="detached")
    chat.wait_until(lambda: chat.draft == "One more")
    assert len(site.server.bodies("POST", "ask")) == 1


def test_a_summary_can_be_stopped(site: Site) -> None:
    key = site.server.add("One", "q", "a")
    chat = site.visit()
    chat.open("One")
    chat.wait_until(lambda: chat.num_replies == 1)
    frame = answer_frame(key, message_frame("not-stored-yet", None, "assistant", ""))
    site.server.run(site.server.tell(frame | {"phase": "summarising"}))
    chat.wait_until(lambda: chat.is_answering)
    chat.stop()
    chat.wait_until(lambda: len(site.server.bodies("POST", f"conversations/{key}/stop")) == 1)
    chat.wait_until(lambda: not chat.is_answering, 15)  # also where no end is told


def test_br_68_what_can_never_fit_is_explained(site: Site) -> None:
    site.server.refuse("ask", context_full(num_left_out=0))
    chat = site.visit()
    chat.is_failure_expected = True
    chat.send("Far too long")
    chat.page.wait_for_selector("dialog")
    assert "alone do not fit" in chat.page.inner_text("dialog")
    chat.page.click("dialog button:has-text('Close')")
    chat.wait_until(lambda: chat.draft == "Far too long")


def test_a_regenerated_answer_may_not_fit_either(site: Site) -> None:
    key = site.server.add("One", "q", "a")
    path = f"messages/{key}-m1/regenerate"
    site.server.refuse(path, context_full("drop", num_left_out=1))
    chat = site.visit()
    chat.is_failure_expected = True
    chat.open("One")
    chat.write("a draft of mine")
    chat.page.keyboard.press("Alt+Shift+R")
    chat.page.click("dialog button:has-text('Leave out the oldest message')")
    chat.wait_until(lambda: chat.replies == ["Echo: q"])
    assert [body.get("on_full") for body in site.server.bodies("POST", path)] == [None, "drop"]
    assert chat.draft == "a draft of mine"
