"""Files of conversations: names that browsers take, what comes back, and what is refused."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from tests.chat_site import ChatSite, PersonAtSite, chat_site
from tests.engine_factories import wait_until
from tests.tokenizer_factories import save_qwen3_tokenizer
from ui.chat.routes.errors import ChatApiError
from ui.chat.routes.files import ImportSlots, attachment

OCTETS = "application/octet-stream"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatSite]:
    tokenizer = save_qwen3_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    data_dir: Path = tmp_path_factory.mktemp("data")
    with chat_site(tokenizer, data_dir, max_import_bytes=200_000, max_request_bytes=20_000) as site:
        yield site


def conversation_of(person: PersonAtSite, title: str, text: str = "Hello") -> str:
    conversation_id: str = person.ask(text)["conversation_id"]
    person.wait_for_answer(conversation_id)
    person.call("PATCH", f"/conversations/{conversation_id}", {"title": title})
    return conversation_id


def send_file(
    person: PersonAtSite, content: bytes | Iterator[bytes], content_type: str = OCTETS
) -> httpx.Response:
    headers = {"Content-Type": content_type}
    return person.http.post("/api/chat/import", content=content, headers=headers)


def name_of(response: httpx.Response) -> str:
    header = response.headers["content-disposition"]
    assert header.startswith("attachment; filename=")
    return unquote(header.rpartition("''")[2])


@pytest.mark.parametrize(
    "title",
    [
        "Plain words",
        "Grüße aus 東京 🔥",
        'quo"te',
        "../../etc/passwd",
        "line\nbreak: x",
        "semi;colon=1",
        "percent%0d%0aSet-Cookie: a=b",
        "back\\slash",
        "CON",
        "x" * 200,
    ],
)
@pytest.mark.parametrize("kind", ["json", "md"])
def test_an_export_has_a_safe_name(site: ChatSite, title: str, kind: str) -> None:
    alice = site.person()
    conversation_id = conversation_of(alice, title)
    response = alice.send("GET", f"/conversations/{conversation_id}/export?format={kind}")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    assert "a=b" not in response.headers.get("set-cookie", "")
    name = name_of(response)
    assert name.endswith(f".{kind}")
    assert not set(name) & set('/\\:"<>|?*\r\n')
    assert len(name) < 100
    header = response.headers["content-disposition"]
    assert header.isascii()


def test_names_with_any_characters_are_told_to_old_and_new_browsers() -> None:
    (value,) = attachment("Grüße 東京.md").values()
    assert value == (
        'attachment; filename="Gr__e __.md"; '
        "filename*=UTF-8''Gr%C3%BC%C3%9Fe%20%E6%9D%B1%E4%BA%AC.md"
    )
    assert attachment('a"b\\c.md')["Content-Disposition"].startswith(
        'attachment; filename="a_b_c.md"; '
    )


def test_json_comes_back_as_it_was(site: ChatSite) -> None:
    alice, bob = site.person(), site.person()
    for title in ("Grüße", "東京"):
        conversation_of(alice, title, f"About {title}")
    exported = alice.send("GET", "/export?format=json")
    assert name_of(exported) == "Hearth conversations.json"
    first = send_file(bob, exported.content)
    assert first.json() == {"num_imported": 2, "num_known": 0, "problems": []}
    assert send_file(bob, exported.content).json()["num_known"] == 2
    titles = [entry["title"] for entry in bob.get("/conversations")["entries"]]
    assert sorted(titles) == ["Grüße", "東京"]
    ours, theirs = (json.loads(exported.content), bob.send("GET", "/export?format=json").json())
    texts = [
        {message["text"] for entry in document["conversations"] for message in entry["messages"]}
        for document in (ours, theirs)
    ]
    assert texts[0] == texts[1]


def test_markdown_of_all_is_a_zip(site: ChatSite) -> None:
    alice = site.person()
    conversation_of(alice, "Grüße", "About this")
    response = alice.send("GET", "/export?format=md")
    assert response.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        (name,) = archive.namelist()
        assert name.startswith("Grüße")
        assert "About this" in archive.read(name).decode()


def test_nothing_is_a_valid_file_too(site: ChatSite) -> None:
    visitor = site.person()
    assert visitor.send("GET", "/export?format=json").json()["conversations"] == []
    response = visitor.send("GET", "/export?format=md")
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.namelist() == []


def test_open_pages_are_told_of_an_import(site: ChatSite) -> None:
    alice, bob = site.person(), site.person()
    conversation_of(alice, "Brought along")
    exported = alice.send("GET", "/export?format=json").content
    with bob.tab() as tab:
        tab.wait_for("entries")
        send_file(bob, exported)
        (entry,) = tab.wait_for("entries")["entries"]
    assert entry["title"] == "Brought along"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{}", b"[1]", b"PK\x03\x04nonsense"])
def test_a_file_that_is_none_of_ours_is_told_in_words(site: ChatSite, content: bytes) -> None:
    bob = site.person()
    response = send_file(bob, content)
    assert response.status_code == 200
    assert response.json()["num_imported"] == 0
    assert response.json()["problems"] != []


def test_a_file_above_the_bound_is_refused_by_announced_and_real_size(site: ChatSite) -> None:
    bob = site.person()
    for content in (b" " * 200_001, (b" " * 1000 for _ in range(201))):
        response = send_file(bob, content)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data", ""])
def test_a_page_of_another_site_cannot_send_a_file(site: ChatSite, content_type: str) -> None:
    assert send_file(site.person(), b"{}", content_type).status_code == 415


@pytest.mark.parametrize("path", ["/export", "/export?format=pdf", "/conversations/c1/export"])
def test_the_format_must_be_known(site: ChatSite, path: str) -> None:
    response = site.person().send("GET", path)
    assert (response.status_code, response.json()["error"]["field"]) == (400, "format")


def test_a_person_sends_one_file_at_a_time(site: ChatSite) -> None:
    bob = site.person()
    may_end = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield b"{"
        may_end.wait(10)
        yield b"}"

    slow = threading.Thread(target=send_file, args=(bob, slowly()))
    slow.start()
    try:
        wait_until(lambda: send_file(site.person(bob.cookie), b"{}").status_code == 429)
        refused = send_file(site.person(bob.cookie), b"{}")
        assert refused.json()["error"]["code"] == "busy"
        assert int(refused.headers["retry-after"]) > 0
        assert send_file(site.person(), b"{}").status_code == 200
    finally:
        may_end.set()
        slow.join()
    wait_until(lambda: send_file(bob, b"{}").status_code == 200)


def test_imports_are_bounded_in_all() -> None:
    slots = ImportSlots(max_imports=1)
    with slots.taken_by("alice"), pytest.raises(ChatApiError), slots.taken_by("bob"):
        pass
    with slots.taken_by("bob"):
        pass
