"""Two persons on one server: no call of one reaches what the other wrote, on any route."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.routing import Route, WebSocketRoute

from tests.chat_site import ChatSite, PersonAtSite, chat_site
from tests.fake_conversations import FakeConversations
from tests.tokenizer_factories import save_qwen3_tokenizer
from ui.chat.person import PersonCookie
from ui.chat.routes.application import create_chat_app

CANARY = "CANARY-zebra-4711"
SETTINGS = {"system_prompt": f"You know {CANARY}.", "temperature": 0, "max_tokens": 8}
QUESTION_ID = "bobs-question-0001"


class Call(NamedTuple):
    """What bob sends to a route, with alice's ids in it where it takes any."""

    path: str
    body: Any = None
    takes_ids: bool = True
    content: bytes | None = None


def calls(conversation_id: str, message_id: str) -> dict[tuple[str, str], Call]:
    """One for each route: the test that they are complete fails where one is forgotten."""
    ask = {
        "conversation_id": conversation_id,
        "question_id": QUESTION_ID,
        "text": "Hi",
        "settings": {},
    }
    c, m = f"/conversations/{conversation_id}", f"/messages/{message_id}"
    with_settings = {"settings": {}}
    return {
        ("GET", "/conversations"): Call("/conversations", takes_ids=False),
        ("GET", "/search"): Call("/search?q=CANARY", takes_ids=False),
        ("GET", "/conversations/{conversation_id}"): Call(c),
        ("PATCH", "/conversations/{conversation_id}"): Call(c, {"title": "mine"}),
        ("DELETE", "/conversations/{conversation_id}"): Call(c),
        ("POST", "/conversations/{conversation_id}/restore"): Call(f"{c}/restore"),
        # {} for everybody: it looks only at what is being written, and says nothing of it
        ("POST", "/conversations/{conversation_id}/stop"): Call(f"{c}/stop", takes_ids=False),
        ("GET", "/conversations/{conversation_id}/export"): Call(f"{c}/export?format=json"),
        ("POST", "/ask"): Call("/ask", ask),
        ("POST", "/messages/{message_id}/regenerate"): Call(f"{m}/regenerate", with_settings),
        ("POST", "/messages/{message_id}/continue"): Call(f"{m}/continue", with_settings),
        ("POST", "/messages/{message_id}/edit"): Call(f"{m}/edit", {"text": "mine"}),
        ("POST", "/messages/{message_id}/select"): Call(f"{m}/select"),
        ("DELETE", "/messages/{message_id}"): Call(m),
        ("POST", "/messages/{message_id}/restore"): Call(f"{m}/restore"),
        ("POST", "/count"): Call(
            "/count", {"conversation_id": conversation_id, "text": "Hi", "settings": {}}
        ),
        ("GET", "/export"): Call("/export?format=json", takes_ids=False),
        ("POST", "/import"): Call(
            "/import", takes_ids=False, content=b"## User\n\nHi\n\n## Assistant\n\nYes\n"
        ),
        ("GET", "/presets"): Call("/presets", takes_ids=False),
        ("PUT", "/presets/{name:path}"): Call("/presets/Hers", with_settings, takes_ids=False),
        ("DELETE", "/presets/{name:path}"): Call("/presets/Hers"),
        ("GET", "/defaults"): Call("/defaults", takes_ids=False),
    }


ROUTES = sorted(calls("c", "m"))


class Stage(NamedTuple):
    """Alice has a conversation, an archived one and a preset; bob a conversation."""

    site: ChatSite
    alice: PersonAtSite
    bob: PersonAtSite
    conversation_id: str
    message_id: str

    def of_alice(self) -> str:
        """All that is hers, as text to compare."""
        shown = [
            self.alice.get("/conversations"),
            self.alice.get("/conversations?archived=1"),
            self.alice.get(f"/conversations/{self.conversation_id}"),
            self.alice.get("/presets"),
            json.loads(self.alice.send("GET", "/export?format=json").content),
        ]
        return json.dumps(shown, sort_keys=True)

    def send(self, person: httpx.Client, route: tuple[str, str]) -> httpx.Response:
        call = calls(self.conversation_id, self.message_id)[route]
        headers = {} if call.content is None else {"Content-Type": "application/octet-stream"}
        if call.content is not None:
            return person.request(
                route[0], f"/api/chat{call.path}", content=call.content, headers=headers
            )
        return person.request(route[0], f"/api/chat{call.path}", json=call.body)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    tokenizer = save_qwen3_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    with chat_site(tokenizer, tmp_path_factory.mktemp("data")) as site:
        alice, bob = site.person(), site.person()
        asked = alice.ask(f"Remember {CANARY}.", settings=SETTINGS)
        alice.wait_for_answer(asked["conversation_id"])
        other = alice.ask(f"Another {CANARY}.", settings=SETTINGS)["conversation_id"]
        alice.wait_for_answer(other)
        alice.call("PATCH", f"/conversations/{other}", {"is_archived": True})
        alice.call("PUT", "/presets/Hers", {"settings": SETTINGS})
        bob.wait_for_answer(bob.ask("Hello.")["conversation_id"])
        yield Stage(site, alice, bob, asked["conversation_id"], asked["answer_id"])


def every_route(routes: Iterable[Any]) -> Iterator[Route]:
    """Those of included routers, too. Mounts are not looked into: there must be none."""
    for route in routes:
        if isinstance(route, Route):
            yield route
        elif hasattr(route, "original_router"):
            yield from every_route(route.original_router.routes)
        else:
            assert isinstance(route, WebSocketRoute)


def test_every_route_is_tried() -> None:
    app: Any = create_chat_app(
        conversations=FakeConversations(),  # type: ignore[arg-type]
        store=None,  # type: ignore[arg-type]
        max_import_bytes=1024,
    )
    found = {
        (method, route.path)
        for route in every_route(app.routes)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert found == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_br_59_another_person_reaches_nothing(stage: Stage, route: tuple[str, str]) -> None:
    before = stage.of_alice()
    assert before.count(CANARY) >= 5
    response = stage.send(stage.bob.http, route)
    if calls("", "")[route].takes_ids:
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    else:
        assert response.status_code == 200, response.text
    assert CANARY not in response.text
    assert stage.of_alice() == before


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
@pytest.mark.parametrize("kind", ["no cookie", "forged", "another server's", "another name"])
def test_without_a_valid_cookie_every_route_is_401(
    stage: Stage, route: tuple[str, str], kind: str
) -> None:
    name, _, value = stage.alice.cookie.partition("=")
    person, _, signature = value.partition(".")
    cookie = {
        "no cookie": "",
        "forged": f"{name}={person}.{signature[::-1]}",
        "another server's": f"{name}={PersonCookie(b'other').issue()}",
        "another name": f"hearth_person={value}",
    }[kind]
    with httpx.Client(base_url=stage.site.url, trust_env=False) as stranger:
        stranger.headers["Cookie"] = cookie
        response = stage.send(stranger, route)
    assert (response.status_code, response.json()["error"]["code"]) == (401, "no_cookie")
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_the_page_of_another_server_cannot_use_a_persons_cookie(
    stage: Stage, route: tuple[str, str]
) -> None:
    before = stage.of_alice()
    with httpx.Client(base_url=stage.site.url, trust_env=False) as browser:
        browser.headers.update({"Cookie": stage.alice.cookie, "Origin": "http://127.0.0.1:1"})
        response = stage.send(browser, route)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "foreign_origin")
    assert stage.of_alice() == before


@pytest.mark.parametrize(
    "parent_id_of", ["alice's question in her conversation", "alice's answer in bob's"]
)
def test_br_59_a_question_cannot_hang_below_a_message_of_another(
    stage: Stage, parent_id_of: str
) -> None:
    before = stage.of_alice()
    own = stage.bob.get("/conversations")["entries"][0]["conversation_id"]
    is_hers = parent_id_of.endswith("her conversation")
    body = {
        "conversation_id": stage.conversation_id if is_hers else own,
        "parent_id": stage.message_id,
        "question_id": "bobs-question-0002",
        "text": "What was before?",
        "settings": {},
    }
    assert stage.bob.send("POST", "/ask", body).status_code == 404
    assert stage.of_alice() == before


def test_br_59_a_question_id_of_another_gives_nothing_away(stage: Stage) -> None:
    """Ids are random; even one that is known is only the own person's."""
    asked = stage.alice.ask(f"Once more {CANARY}.", question_id="shared-question-01")
    response = stage.bob.send(
        "POST",
        "/ask",
        {
            "conversation_id": None,
            "question_id": "shared-question-01",
            "text": "Hi",
            "settings": {},
        },
    )
    assert asked["conversation_id"] not in response.text
    assert asked["answer_id"] not in response.text
    stage.alice.wait_for_answer(asked["conversation_id"])


def test_br_59_events_of_one_person_do_not_reach_another(stage: Stage) -> None:
    with stage.bob.tab() as tab, stage.alice.tab() as own:
        tab.watch(stage.conversation_id)
        assert tab.wait_for("gone")["conversation_id"] == stage.conversation_id
        own.watch(stage.conversation_id)
        own.wait_for("conversation")
        stage.alice.ask(f"And {CANARY}?", stage.conversation_id, settings=SETTINGS)
        own.wait_for("conversation", lambda event: event["conversation"]["messages"][-1]["facts"])
        stage.alice.call("PATCH", f"/conversations/{stage.conversation_id}", {"title": CANARY})
        own.wait_for("entry", lambda event: event["entry"]["title"] == CANARY)
        renamed = stage.bob.get("/conversations")["entries"][0]["conversation_id"]
        stage.bob.call("PATCH", f"/conversations/{renamed}", {"title": "the last of the news"})
        tab.wait_for("entry", lambda event: event["entry"]["title"] == "the last of the news")
        assert CANARY not in json.dumps(tab.seen)
        assert CANARY in json.dumps(own.seen)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/config", "/gradio_api/info", "/gradio_api/startup-events", "/gradio_api/app_id"),
        *("/health", "/metrics", "/gradio_api/openapi.json", "/theme.css"),
    ],
)
def test_br_59_gradio_and_the_other_routes_know_nothing_of_conversations(
    stage: Stage, path: str
) -> None:
    for person in (stage.alice, stage.bob):
        response = person.http.get(path)
        assert CANARY not in response.text
        assert stage.conversation_id not in response.text


def test_br_59_a_new_visitor_finds_nothing(stage: Stage) -> None:
    visitor = stage.site.person()
    assert visitor.get("/conversations") == {"entries": []}
    assert visitor.get("/presets") == {"presets": []}
    assert visitor.get("/search?q=CANARY") == {"hits": []}
    assert visitor.get("/defaults")["settings"]["system_prompt"] == ""
