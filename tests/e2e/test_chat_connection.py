"""What the page says and keeps when the server, the network or the model is away."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Site
from tests.e2e.scripted_server import HOLD


def test_a_lost_connection_comes_back_by_itself(site: Site) -> None:
    site.server.add("One", "q", "a")
    chat = site.visit()
    chat.is_failure_expected = True
    chat.open("One")
    chat.write("a draft")
    chat.page.evaluate("window.__stays = true")
    site.server.drop_connections(is_reachable=False)
    chat.wait_until(lambda: chat.banner == "Connection to the server lost, reconnecting…")
    assert chat.questions == ["q"]
    site.server.add("Another", "x", "y")
    site.server.is_reachable = True
    chat.wait_until(lambda: chat.banner == "")
    chat.wait_until(lambda: sorted(chat.chats) == ["Another", "One"])
    assert chat.draft == "a draft"
    assert chat.page.evaluate("window.__stays") is True
    assert "Connection to the server was lost" not in chat.page.inner_text("body")
    assert chat.errors == []


def test_a_short_break_is_not_worth_a_word(site: Site) -> None:
    chat = site.visit()
    chat.is_failure_expected = True
    banners: list[str] = []
    site.server.drop_connections(is_reachable=True)
    chat.wait_until(lambda: banners.append(chat.banner) or len(site.server.tabs) == 1)  # type: ignore[func-returns-value]
    assert set(banners) == {""}


def test_another_server_is_taken_over_in_silence(site: Site) -> None:
    key = site.server.add("One", "q", "a")
    chat = site.visit(f"/#/c/{key}")
    chat.is_failure_expected = True
    chat.wait_until(lambda: chat.questions == ["q"])
    chat.write("a draft")
    chat.page.evaluate("window.__stays = true")
    site.server.drop_connections(is_reachable=False)
    site.server.server_id = "server-2"
    site.server.conversations[key]["title"] = "Renamed"
    site.server.conversations[key]["messages"][1] |= {"text": "a, in full", "revision": 2}
    site.server.presets["New"] = dict(site.server.conversations[key]["settings"])
    site.server.is_reachable = True
    chat.wait_until(lambda: chat.chats == ["Renamed"] and chat.replies == ["a, in full"])
    chat.open_settings()
    chat.page.click("#preset input")
    chat.wait_until(lambda: chat.page.locator("#preset [role=option]").all_inner_texts() != [])
    assert chat.draft == "a draft"
    assert chat.page.evaluate("window.__stays") is True
    assert chat.errors == []


def test_an_answer_goes_on_after_a_break(site: Site) -> None:
    chat = site.visit()
    chat.is_failure_expected = True
    chat.send(HOLD)
    chat.wait_for_live_text()
    site.server.drop_connections(is_reachable=False)
    chat.wait_until(lambda: "reconnecting" in chat.banner)
    site.server.is_reachable = True
    chat.wait_until(lambda: chat.banner == "")
    chat.wait_for_live_text()
    chat.stop()
    chat.wait_for_replies(1)
    assert chat.errors == []


@pytest.mark.parametrize(
    ("state", "num_restarts", "title"),
    [
        ("loading", 0, "The model is loading."),
        ("loading", 2, "The model is restarting."),
        ("restarting", 1, "The model is restarting."),
        ("failed", 0, "The model could not be started."),
        ("stopped", 0, "The model has stopped."),
    ],
)
def test_the_engine_s_state_in_words(site: Site, state: str, num_restarts: int, title: str) -> None:
    chat = site.visit()
    site.server.set_engine(state, "It said <b>why</b>.", num_restarts)
    chat.wait_until(lambda: chat.banner == f"{title} It said <b>why</b>.")
    site.server.set_engine("ready")
    chat.wait_until(lambda: chat.banner == "The model is ready again.")
    chat.wait_until(lambda: chat.banner == "")
    assert chat.ask("Hello") == "Echo: Hello"


def test_gradio_s_own_requests_end_when_the_page_is_there(site: Site) -> None:
    """So there is nothing of Gradio's that could break and make it reload the page."""
    chat = site.visit()
    requests: list[str] = []
    chat.page.on("request", lambda request: requests.append(request.url))
    names = chat.page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    chat.page.wait_for_timeout(3000)
    assert [url for url in requests if "/api/chat/" not in url] == []
    assert [name for name in names if "heartbeat" in name or "/queue/" in name] == []
