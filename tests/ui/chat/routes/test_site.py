"""The chat over real sockets: answers, tabs, restarts, many at once, the end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.chat_site import ChatSite, PersonAtSite, Tab, chat_site
from tests.engine_factories import wait_until
from tests.tokenizer_factories import save_qwen3_tokenizer
from tests.web_factories import SlowRunner

LONG = {"max_tokens": 700}


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen3_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def site(tokenizer_path: Path, tmp_path: Path) -> Iterator[ChatSite]:
    with chat_site(tokenizer_path, tmp_path, SlowRunner(0.02)) as running:
        yield running


def took_s(work: Callable[[], Any]) -> float:
    start_s = time.monotonic()
    work()
    return time.monotonic() - start_s


def test_a_tab_gets_the_whole_answer_in_pieces(site: ChatSite) -> None:
    alice = site.person()
    with alice.tab() as tab:
        assert [tab.next()["type"] for _ in range(3)] == ["hello", "engine", "entries"]
        asked = alice.ask("Hello", settings={"max_tokens": 60})
        tab.watch(asked["conversation_id"])
        end = tab.wait_for_end()
    assert (end["message_id"], end["state"]) == (asked["answer_id"], "done")
    assert end["facts"]["num_output_tokens"] == 60
    shown = ""
    for event in tab.seen:
        if event["type"] == "answer":
            shown = event["text"] if event["is_whole"] else shown + event["text"]
    kept = alice.get(f"/conversations/{asked['conversation_id']}")["messages"][-1]["text"]
    assert shown
    assert kept.startswith(shown)
    assert (end["text"] or kept) == kept


def test_the_same_question_again_is_the_same_answer(site: ChatSite) -> None:
    """A browser that saw no answer to its call sends it once more."""
    alice = site.person()
    with ThreadPoolExecutor(4) as threads:
        futures = [
            threads.submit(alice.ask, "Hello", question_id="question-id-00001") for _ in range(4)
        ]
        asked = [future.result() for future in futures]
    asked.append(alice.ask("Hello", question_id="question-id-00001"))
    assert {answer["answer_id"] for answer in asked} == {asked[0]["answer_id"]}
    alice.wait_for_answer(asked[0]["conversation_id"])
    assert len(alice.get("/conversations")["entries"]) == 1
    assert len(alice.get(f"/conversations/{asked[0]['conversation_id']}")["messages"]) == 2


def test_two_questions_at_once_are_never_mixed(site: ChatSite) -> None:
    alice = site.person()
    first = alice.ask("Hello", settings=LONG)
    body = {
        "conversation_id": first["conversation_id"],
        "question_id": "question-id-00002",
        "text": "And this",
        "settings": {},
    }
    refused = alice.send("POST", "/ask", body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    alice.call("POST", f"/conversations/{first['conversation_id']}/stop")
    assert alice.wait_for_answer(first["conversation_id"])["state"] == "stopped"
    assert alice.send("POST", "/ask", body).status_code == 200


def test_stop_works_from_any_tab_and_every_tab_sees_it(site: ChatSite) -> None:
    alice = site.person()
    asked = alice.ask("Hello", settings=LONG)
    with alice.tab() as first, alice.tab() as second:
        for tab in (first, second):
            tab.watch(asked["conversation_id"])
            tab.wait_for("answer")
        stopped_s = took_s(
            lambda: (
                alice.call("POST", f"/conversations/{asked['conversation_id']}/stop"),
                [tab.wait_for_end() for tab in (first, second)],
            )
        )
    assert stopped_s < 1
    assert alice.wait_for_answer(asked["conversation_id"])["state"] == "stopped"


def test_br_59_stop_of_another_person_stops_nothing(site: ChatSite) -> None:
    alice, bob = site.person(), site.person()
    asked = alice.ask("Hello", settings=LONG)
    bob.call("POST", f"/conversations/{asked['conversation_id']}/stop")
    time.sleep(0.2)
    message = alice.get(f"/conversations/{asked['conversation_id']}")["messages"][-1]
    assert message["state"] == "writing"


def test_a_full_queue_is_429_with_the_time_to_come_back(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    limits = {"max_num_seqs": 1, "max_queued_requests_per_user": 1}
    with chat_site(tokenizer_path, tmp_path, SlowRunner(0.02), engine=limits) as site:
        alice = site.person()
        for _ in range(2):
            alice.ask("Hello", settings=LONG)
            time.sleep(0.1)
        body = {
            "conversation_id": None,
            "question_id": "question-id-00003",
            "text": "Hello",
            "settings": {},
        }
        refused = alice.send("POST", "/ask", body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        assert len(alice.get("/conversations")["entries"]) == 2  # nothing of it was kept


def test_a_restart_keeps_persons_conversations_and_what_was_written(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    with chat_site(tokenizer_path, tmp_path, SlowRunner(0.02)) as site:
        alice = site.person()
        done = alice.ask("Hello")["conversation_id"]
        alice.wait_for_answer(done)
        cut = alice.ask("Hello again", settings=LONG)["conversation_id"]
        with alice.tab() as tab:
            first_id = tab.wait_for("hello")["server_id"]
            tab.watch(cut)
            tab.wait_for("answer", lambda event: (event["num_output_tokens"] or 0) > 5)
        before = alice.get(f"/conversations/{done}")
    with chat_site(tokenizer_path, tmp_path) as site:
        alice = site.person(alice.cookie)
        assert alice.get(f"/conversations/{done}") == before
        answer = alice.get(f"/conversations/{cut}")["messages"][-1]
        assert answer["state"] == "interrupted"
        assert answer["text"] != ""
        with alice.tab() as tab:
            assert tab.wait_for("hello")["server_id"] != first_id
        assert site.person().get("/conversations") == {"entries": []}


def test_fifty_tabs_of_one_conversation_see_the_same_end(site: ChatSite) -> None:
    alice = site.person()
    asked = alice.ask("Hello", settings={"max_tokens": 40})
    with contextlib.ExitStack() as stack:
        tabs = [stack.enter_context(alice.tab()) for _ in range(50)]
        for tab in tabs:
            tab.watch(asked["conversation_id"])
        ends = [tab.wait_for_end() for tab in tabs]
    assert {(end["message_id"], end["state"]) for end in ends} == {(asked["answer_id"], "done")}


class ReadingTabs:
    """Tabs that go on reading in a thread, as browsers do."""

    def __init__(self, tabs: list[Tab]) -> None:
        self._threads = [threading.Thread(target=self._read, args=(tab,)) for tab in tabs]
        self.num_events = [0] * len(tabs)
        self._tabs = tabs
        for thread in self._threads:
            thread.start()

    def _read(self, tab: Tab) -> None:
        number = self._tabs.index(tab)
        with contextlib.suppress(ConnectionClosed):
            while True:
                tab.connection.recv()
                self.num_events[number] += 1

    def close(self) -> None:
        for tab in self._tabs:
            tab.close()
        for thread in self._threads:
            thread.join(10)


def test_br_65_buttons_and_lists_answer_while_sixty_tabs_stream(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    engine = {"max_num_seqs": 64, "max_queued_requests": 200}
    with chat_site(tokenizer_path, tmp_path, SlowRunner(0.1), engine=engine) as site:
        people = [site.person() for _ in range(60)]
        asked = [person.ask("Hello", settings=LONG)["conversation_id"] for person in people]
        tabs = [person.tab() for person in people]
        for tab, conversation_id in zip(tabs, asked, strict=True):
            tab.watch(conversation_id)
        reading = ReadingTabs(tabs)
        try:
            wait_until(lambda: min(reading.num_events) > 6, 60)
            times_s = [took_s(lambda: press_buttons(people[0], asked[0], site)) for _ in range(3)]
            times_s += [took_s(lambda: stop_and_see(people[1], asked[1]))]
        finally:
            reading.close()
    assert max(times_s) < 1, times_s


def press_buttons(person: PersonAtSite, conversation_id: str, site: ChatSite) -> None:
    person.get("/conversations")
    person.call("PATCH", f"/conversations/{conversation_id}", {"title": "A new name"})
    assert person.http.get("/health").status_code == 200
    with person.tab() as tab:
        tab.watch(conversation_id)
        tab.wait_for("answer")


def stop_and_see(person: PersonAtSite, conversation_id: str) -> None:
    person.call("POST", f"/conversations/{conversation_id}/stop")
    assert person.wait_for_answer(conversation_id)["state"] == "stopped"


def test_the_end_is_quick_with_tabs_open_and_answers_under_way(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(chat_site(tokenizer_path, tmp_path, SlowRunner(0.02)))
        alice = site.person()
        asked = alice.ask("Hello", settings=LONG)
        tabs = [alice.tab() for _ in range(10)]
        for tab in tabs:
            tab.watch(asked["conversation_id"])
            tab.wait_for("answer")
        assert took_s(stack.close) < 4
        assert {code_of_end(tab) for tab in tabs} <= {1001, 1012}


def code_of_end(tab: Tab) -> int | None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            tab.next()
    return tab.connection.protocol.close_code
