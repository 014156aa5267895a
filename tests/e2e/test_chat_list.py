"""The list of conversations: groups, menus, search, archive, import and export, in two tabs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import Site
from tests.e2e.scripted_server import HOLD, Refusal

DAY_S = 86_400.0


def test_chats_stand_in_groups_by_age(site: Site) -> None:
    for title, age_s in (
        ("Now", 0),
        ("Old", 40 * DAY_S),
        ("Week", 4 * DAY_S),
        ("Yesterday", DAY_S),
    ):
        site.server.add(title, "q", "a", age_s=age_s)
    site.server.add("Kept", "q", "a", age_s=50 * DAY_S, is_pinned=True)
    chat = site.visit()
    chat.wait_until(lambda: len(chat.chats) == 5)
    assert chat.chats == ["Kept", "Now", "Yesterday", "Week", "Old"]
    assert chat.groups == ["Pinned", "Today", "Yesterday", "Previous 7 days", "Older"]


def test_a_title_is_changed_in_place(site: Site) -> None:
    site.server.add("Before", "q", "a")
    chat = site.visit()
    chat.choose("Before", "Rename")
    chat.page.keyboard.type("  After  ")
    chat.page.keyboard.press("Enter")
    chat.wait_until(lambda: chat.chats == ["After"])
    assert chat.page.evaluate("document.activeElement.className") == "chat-link"
    chat.page.keyboard.press("F2")
    chat.page.keyboard.type("Never")
    chat.page.keyboard.press("Escape")
    chat.page.wait_for_timeout(100)
    assert chat.chats == ["After"]
    assert site.server.bodies("PATCH", "conversations/conversation-0001") == [{"title": "After"}]


def test_a_chat_is_pinned_and_let_go(site: Site) -> None:
    site.server.add("One", "q", "a", age_s=10)
    site.server.add("Two", "q", "a")
    chat = site.visit()
    chat.choose("One", "Pin")
    chat.wait_until(lambda: chat.chats == ["One", "Two"])
    chat.choose("One", "Unpin")
    chat.wait_until(lambda: chat.chats == ["Two", "One"])


def test_a_deleted_chat_comes_back_with_undo(site: Site) -> None:
    site.server.add("Keep", "k", "kept", age_s=5)
    site.server.add("Drop", "d", "dropped")
    chat = site.visit()
    chat.open("Drop")
    chat.choose("Drop", "Delete")
    chat.wait_until(lambda: chat.chats == ["Keep"])
    assert chat.questions == []
    assert chat.toasts == ["Deleted “Drop”"]
    chat.page.click(".toast-action")
    chat.wait_until(lambda: chat.questions == ["d"] and chat.chats == ["Drop", "Keep"])
    assert (chat.toasts, chat.errors) == ([], [])


def test_a_deletion_that_fails_says_so_and_changes_nothing(site: Site) -> None:
    key = site.server.add("Drop", "d", "dropped")
    site.server.refuse(f"conversations/{key}", Refusal(409, "conflict", "Somebody is busy there."))
    chat = site.visit()
    chat.is_failure_expected = True
    chat.open("Drop")
    chat.choose("Drop", "Delete")
    chat.wait_until(lambda: chat.toasts == ["Somebody is busy there."])
    assert (chat.chats, chat.questions, chat.errors) == (["Drop"], ["d"], [])


def test_archived_chats_have_a_list_of_their_own(site: Site) -> None:
    site.server.add("Done", "q", "a", age_s=9)
    site.server.add("Current", "q", "a")
    chat = site.visit()
    chat.choose("Done", "Archive")
    chat.wait_until(lambda: chat.chats == ["Current"])
    chat.choose_more("Archived chats")
    chat.wait_until(lambda: chat.chats == ["Done"])
    chat.choose("Done", "Delete")
    chat.wait_until(lambda: chat.chats == [])
    chat.page.click(".toast-action >> nth=-1")
    chat.wait_until(lambda: chat.chats == ["Done"])
    chat.choose("Done", "Move back")
    chat.wait_until(lambda: chat.chats == [])
    assert "Nothing is archived" in chat.page.inner_text(".list-body")
    chat.page.click(".list-back")
    chat.wait_until(lambda: chat.chats == ["Current", "Done"])


def test_search_marks_what_it_found_and_leads_there(site: Site) -> None:
    lines = [f"Line {number} about nothing" for number in range(60)]
    lines[8] = "the Lighthouse 🔥 keeper"
    site.server.add("Storms", *lines)
    site.server.add("Lighthouses", "q", "a")
    chat = site.visit()
    chat.page.fill("#search input", "lighthouse")
    chat.page.wait_for_selector(".search-hit mark")
    assert chat.page.inner_text(".list-head") == "2 results"
    assert chat.page.locator(".search-hit mark").all_inner_texts() == ["Lighthouse", "Lighthouse"]
    chat.page.click(".search-hit:has-text('keeper')")
    found = chat.page.locator(".message.is-found")
    found.wait_for()
    assert "keeper" in found.inner_text()
    box, view = found.bounding_box(), chat.page.locator("#conversation-view").bounding_box()
    assert box is not None
    assert view is not None
    assert view["y"] < box["y"] < view["y"] + view["height"]
    visibility = "element => getComputedStyle(element).contentVisibility"
    assert found.evaluate(visibility) == "visible"  # otherwise its frame is cut off
    chat.page.fill("#search input", "no such thing")
    chat.wait_until(
        lambda: "Nothing found for “no such thing”" in chat.page.inner_text(".list-head")
    )
    chat.page.press("#search input", "Escape")
    chat.wait_until(lambda: chat.chats == ["Lighthouses", "Storms"])


def test_search_waits_for_the_end_of_a_word(site: Site) -> None:
    site.server.add("Lighthouse", "q", "a")
    chat = site.visit()
    chat.page.locator("#search input").press_sequentially("lighthouse", delay=20)
    chat.page.wait_for_selector(".search-hit mark")
    assert len([call for call in site.server.calls if call[1] == "search"]) < 4


def test_arrows_and_keys_move_in_the_list(site: Site) -> None:
    for number in range(3):
        site.server.add(f"Chat {number}", f"q{number}", "a", age_s=number)
    chat = site.visit()
    chat.page.focus(".chat-link")
    focused = "document.activeElement.textContent"
    chat.page.keyboard.press("ArrowDown")
    assert chat.page.evaluate(focused) == "Chat 1"
    chat.page.keyboard.press("End")
    assert chat.page.evaluate(focused) == "Chat 2"
    chat.page.keyboard.press("ArrowDown")
    assert chat.page.evaluate(focused) == "Chat 2"
    chat.page.keyboard.press("Enter")
    chat.wait_until(lambda: chat.questions == ["q2"])
    chat.page.keyboard.press("Tab")
    chat.page.keyboard.press("Enter")
    assert chat.page.evaluate("document.activeElement.role") == "menuitem"
    chat.page.keyboard.press("Escape")
    assert chat.page.locator(".hearth-menu").count() == 0
    assert chat.page.evaluate("document.activeElement.className") == "chat-menu"


def test_two_tabs_show_the_same_list(site: Site) -> None:
    context = site.person()
    first, second = ChatPage(context, site.url), ChatPage(context, site.url)
    first.send(HOLD)
    second.wait_until(lambda: second.page.is_visible(".chat-dot"))
    assert second.chats == [HOLD]
    second.open(HOLD)
    second.stop()
    for tab in (first, second):
        tab.wait_for_replies(1)
        tab.wait_until(lambda tab=tab: not tab.page.is_visible(".chat-dot"))
    second.choose(HOLD, "Delete")
    first.wait_until(lambda: first.chats == [] and first.questions == [])
    assert first.toasts == ["This chat was deleted."]


@pytest.mark.parametrize(("item", "ending"), [("Markdown", "md"), ("JSON", "json")])
def test_a_chat_is_exported(site: Site, item: str, ending: str) -> None:
    key = site.server.add("One", "q", "a")
    chat = site.visit()
    with chat.page.expect_download() as download:
        chat.choose("One", f"Export as {item}")
    assert download.value.suggested_filename == f"{key}.{ending}"
    assert Path(download.value.path()).read_bytes() == b"exported"
    with chat.page.expect_download() as download:
        chat.choose_more(f"Export all as {item}")
    assert download.value.suggested_filename == f"all.{ending}"


def test_an_import_says_what_came_of_it(site: Site) -> None:
    problems = [f"Chat {number}: <b>no messages</b>" for number in range(7)]
    site.server.import_result = {"num_imported": 2, "num_known": 1, "problems": problems}
    chat = site.visit()
    with chat.page.expect_file_chooser() as chooser:
        chat.choose_more("Import")
    file = {"name": "chats.json", "mimeType": "application/json", "buffer": b'{"chats": []}'}
    chooser.value.set_files([file])
    chat.wait_until(lambda: "2 chats imported. 1 was here already" in "".join(chat.toasts))
    assert problems[4] in chat.toasts[0]
    assert problems[5] not in chat.toasts[0]
    assert site.server.imported == [b'{"chats": []}']


def test_an_import_of_nothing_says_only_why(site: Site) -> None:
    site.server.import_result = {"num_imported": 0, "num_known": 0, "problems": ["It is empty."]}
    chat = site.visit()
    with chat.page.expect_file_chooser() as chooser:
        chat.choose_more("Import")
    chooser.value.set_files([{"name": "a.md", "mimeType": "text/markdown", "buffer": b""}])
    chat.wait_until(lambda: "1 could not be read:\nIt is empty." in chat.toasts)


def test_five_hundred_chats_are_drawn_at_once(site: Site) -> None:
    for number in range(500):
        site.server.add(f"Chat {number}", "q", "a", age_s=number * 3600.0)
    chat = site.visit()
    chat.wait_until(lambda: chat.page.locator(".chat-row").count() == 500)
    took_ms = chat.page.evaluate(
        """async () => {
            const start = performance.now();
            document.querySelectorAll(".chat-row")[499].querySelector("a").click();
            await new Promise((resolve) => setTimeout(resolve, 0));
            return performance.now() - start;
        }"""
    )
    assert took_ms < 500
    assert chat.errors == []
