"""The file, its lock, and what survives a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from engine import ConfigError
from tests.storage_factories import Library, library
from ui.chat.conversation import MessageState
from ui.chat.settings import ChatSettings
from ui.chat.storage.database import DatabaseClosedError, open_database
from ui.chat.storage.store import TextUpdate

ROOT = Path(__file__).parents[4]


def test_only_this_account_can_read_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "deep" / "data"
    with library(data_dir) as shelf:
        shelf.ask("ann", "Hello")
        assert data_dir.stat().st_mode & 0o777 == 0o700
        modes = {path.name: path.stat().st_mode & 0o777 for path in data_dir.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"hearth.sqlite3", "hearth.sqlite3-wal", "hearth.lock"} <= set(modes)


def test_a_database_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    open_database(tmp_path).close()
    (tmp_path / "hearth.sqlite3").chmod(0o644)
    open_database(tmp_path).close()
    assert (tmp_path / "hearth.sqlite3").stat().st_mode & 0o777 == 0o600


def test_connections_are_set_up_for_safety(shelf: Library) -> None:
    wanted = {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "secure_delete": 1}
    with shelf.database.reading() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in wanted}
    assert found == wanted


def test_one_server_at_a_time(tmp_path: Path) -> None:
    first = open_database(tmp_path)
    with pytest.raises(ConfigError, match="Another Hearth server uses"):
        open_database(tmp_path)
    first.close()
    open_database(tmp_path).close()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="--data-dir"):
        open_database(tmp_path / "file" / "data")


def test_a_lock_is_free_again_after_a_failed_opening(tmp_path: Path) -> None:
    path = tmp_path / "hearth.sqlite3"
    path.write_bytes(b"rubbish" * 1000)
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot be used"):
            open_database(tmp_path)
    path.unlink()
    open_database(tmp_path).close()


def test_secrets_are_made_once(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    secret, other = database.secret("cookie"), database.secret("other")
    database.close()
    assert (len(secret), secret == other) == (32, False)
    database = open_database(tmp_path)
    assert database.secret("cookie") == secret
    database.close()


def test_after_the_end_there_is_no_way_in(tmp_path: Path) -> None:
    with library(tmp_path) as shelf:
        pass
    with pytest.raises(DatabaseClosedError):
        shelf.store.entries("ann")
    with pytest.raises(DatabaseClosedError):
        shelf.ask("ann", "Hello")
    shelf.database.close()
    assert not (tmp_path / "hearth.sqlite3-wal").exists()


def test_a_transaction_that_fails_leaves_nothing(shelf: Library) -> None:
    def fail_halfway() -> None:
        with shelf.database.writing() as connection:
            connection.execute(text("INSERT INTO secrets VALUES ('half', x'00')"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    with shelf.database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM secrets")).scalar_one() == 0


def test_what_is_read_in_one_block_belongs_together(shelf: Library) -> None:
    count = text("SELECT count(*) FROM messages")
    with shelf.database.reading() as connection:
        before = connection.execute(count).scalar_one()
        shelf.ask("ann", "meanwhile")
        assert connection.execute(count).scalar_one() == before == 0


def test_many_threads_write_and_read(shelf: Library) -> None:
    store, num_rounds = shelf.store, 12
    failures: list[BaseException] = []

    def work(person: str) -> None:
        asked = shelf.ask(person, "0", question_id=f"q-{person}", answer_id=f"a-{person}")
        shelf.finish(asked.answer_id, "answer")
        for number in range(1, num_rounds):
            ids = {"question_id": f"q{number}-{person}", "answer_id": f"a{number}-{person}"}
            again = shelf.ask(person, str(number), asked.conversation_id, **ids)
            store.write_texts([TextUpdate(again.answer_id, "answ")])
            assert store.search(person, "answ") != ()
            shelf.finish(again.answer_id, "answer")
        store.set_pinned(person, asked.conversation_id, True)

    def guarded(person: str) -> None:
        try:
            work(person)
        except BaseException as error:
            failures.append(error)

    people = [f"person-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(guarded, people))
    assert failures == []
    for person in people:
        [entry] = store.entries(person)
        texts = shelf.shown(person, entry.conversation_id)
        assert texts == [part for n in range(num_rounds) for part in (str(n), "answer")]


def test_two_sends_at_once_are_one_question_or_one_is_refused(shelf: Library) -> None:
    first = shelf.exchange("ann", "Hello", "Hi")
    start = threading.Barrier(6)

    def send(number: int) -> str:
        start.wait()
        try:
            shelf.store.ask(
                "ann",
                conversation_id=first.conversation_id,
                question_id=f"same-{number % 2}",
                answer_id=f"answer-{number}",
                text=f"text {number % 2}",
                settings=ChatSettings(),
            )
        except Exception as error:
            return type(error).__name__
        return "asked"

    with ThreadPoolExecutor(6) as pool:
        results = sorted(pool.map(send, range(6)))
    assert results == ["ConflictError"] * 3 + ["asked"] * 3
    assert len(shelf.shown("ann", first.conversation_id)) == 4


_WRITER = """
import sys
from pathlib import Path
from tests.storage_factories import library
from ui.chat.storage.store import TextUpdate

with library(Path(sys.argv[1])) as shelf:
    asked = shelf.ask("ann", "Count for me")
    number = 0
    while True:
        number += 1
        shelf.store.write_texts([TextUpdate("a1", " ".join(map(str, range(number))))])
        print(number, flush=True)
"""


def test_a_killed_server_loses_nothing_it_had_written(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert writer.stdout is not None
    with writer.stdout:
        for line in writer.stdout:
            if int(line) >= 60:
                break
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")[:-1]
    writer.wait()
    num_told = int(rest[-1]) if rest else 60
    with library(tmp_path) as shelf:
        answer = shelf.store.message("ann", "a1")
        num_kept = len(answer.text.split())
        assert answer.text == " ".join(map(str, range(num_kept)))
        assert num_kept >= num_told
        assert answer.state is MessageState.WRITING
        assert shelf.store.interrupt_unfinished() == 1
        with shelf.database.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"


def test_a_failure_tells_nothing_of_what_people_wrote(shelf: Library) -> None:
    with pytest.raises(DBAPIError) as caught, shelf.database.writing() as connection:
        connection.execute(text("INSERT INTO nowhere VALUES (:words)"), {"words": "my secret"})
    assert "nowhere" in str(caught.value)
    assert "my secret" not in str(caught.value)
