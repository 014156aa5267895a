"""Saving and restoring the database, as the two commands do it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from engine import ConfigError
from tests.storage_factories import Library, library
from ui.backup import create_backup, main, restore_backup
from ui.chat.storage.database import open_database
from ui.chat.storage.store import TextUpdate
from ui.chat.storage.upgrade import newest_revision

ROOT = Path(__file__).parents[2]
FIRST_VERSION = ROOT / "tests" / "data" / "database-0001.sql"
NAME = "hearth.sqlite3"
OTHER_IDS = {"question_id": "q9", "answer_id": "a9"}  # each opening counts from q1 again


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "copy.sqlite3"


def fill(data_dir: Path, text: str = "kept") -> str:
    with library(data_dir) as shelf:
        return shelf.exchange("ann", "question", text).conversation_id


def texts(data_dir: Path, conversation_id: str) -> list[str]:
    with library(data_dir) as shelf:
        return shelf.shown("ann", conversation_id)


def test_a_backup_brings_everything_back(data_dir: Path, file: Path) -> None:
    conversation_id = fill(data_dir)
    size_bytes = create_backup(data_dir, file)
    assert size_bytes == file.stat().st_size > 0
    assert file.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(data_dir)
    assert restore_backup(file, data_dir) is None
    assert texts(data_dir, conversation_id) == ["question", "kept"]
    assert (data_dir / NAME).stat().st_mode & 0o777 == 0o600


def test_a_backup_is_a_single_file(data_dir: Path, file: Path) -> None:
    fill(data_dir)
    create_backup(data_dir, file)
    assert [path.name for path in file.parent.iterdir()] == ["data", file.name]


def test_while_the_server_writes_the_copy_is_of_one_moment(data_dir: Path, file: Path) -> None:
    is_over = threading.Event()
    rounds: list[int] = []

    def write(shelf: Library) -> None:
        while not is_over.is_set():
            rounds.append(len(rounds))
            text = f"{len(rounds)} " * 2000
            shelf.store.write_texts([TextUpdate("a1", text), TextUpdate("a2", text)])

    with library(data_dir) as shelf:
        first = shelf.ask("ann", "one")
        second = shelf.ask("ann", "two")
        writer = threading.Thread(target=write, args=(shelf,))
        writer.start()
        try:
            for number in range(5):
                create_backup(data_dir, file, is_forced=number > 0)
        finally:
            is_over.set()
            writer.join()
    assert len(rounds) > 5
    other = data_dir.with_name("other")
    restore_backup(file, other)
    answers = [texts(other, asked.conversation_id)[1] for asked in (first, second)]
    assert answers[0] == answers[1] != ""


def test_an_existing_file_is_not_overwritten_unless_asked(data_dir: Path, file: Path) -> None:
    fill(data_dir)
    file.write_text("a treasure")
    with pytest.raises(ConfigError, match="--force"):
        create_backup(data_dir, file)
    assert file.read_text() == "a treasure"
    create_backup(data_dir, file, is_forced=True)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (2,)


def test_the_database_itself_is_never_the_backup(data_dir: Path) -> None:
    conversation_id = fill(data_dir)
    with pytest.raises(ConfigError, match="the database itself"):
        create_backup(data_dir, data_dir / NAME, is_forced=True)
    with pytest.raises(ConfigError, match="in use"):
        restore_backup(data_dir / NAME, data_dir)
    assert texts(data_dir, conversation_id) == ["question", "kept"]


def test_without_a_database_there_is_nothing_to_save(data_dir: Path, file: Path) -> None:
    with pytest.raises(ConfigError, match="no database"):
        create_backup(data_dir, file)
    assert not file.exists()
    assert not data_dir.exists()


def test_a_folder_that_is_not_there_is_named(data_dir: Path, tmp_path: Path) -> None:
    fill(data_dir)
    with pytest.raises(ConfigError, match="nowhere"):
        create_backup(data_dir, tmp_path / "nowhere" / "copy.sqlite3")


def test_a_damaged_database_gives_no_backup_that_looks_whole(data_dir: Path, file: Path) -> None:
    with library(data_dir) as shelf:
        for number in range(50):
            shelf.exchange("ann", f"{number} " * 500, "x")
    _damage(data_dir / NAME)
    with pytest.raises(ConfigError, match=r"damaged|malformed"):
        create_backup(data_dir, file)
    assert list(file.parent.iterdir()) == [data_dir]


def test_restoring_waits_for_the_server_to_stop(data_dir: Path, file: Path) -> None:
    conversation_id = fill(data_dir)
    create_backup(data_dir, file)
    with library(data_dir) as shelf:
        shelf.exchange("ann", "more", "text", conversation_id, **OTHER_IDS)
        with pytest.raises(ConfigError, match="stop it first"):
            restore_backup(file, data_dir)
        assert len(shelf.shown("ann", conversation_id)) == 4


def test_what_was_there_is_kept_each_time(data_dir: Path, file: Path) -> None:
    conversation_id = fill(data_dir, "old")
    create_backup(data_dir, file)
    newer = fill(data_dir.with_name("newer"), "new")
    shutil.copy(data_dir.with_name("newer") / NAME, data_dir / NAME)
    kept = restore_backup(file, data_dir)
    assert kept == data_dir / f"{NAME}.before-restore"
    again = restore_backup(file, data_dir)
    assert again == data_dir / f"{NAME}.before-restore-2"
    assert texts(data_dir, conversation_id) == ["question", "old"]
    other = data_dir.with_name("other")
    restore_backup(kept, other)
    assert texts(other, newer) == ["question", "new"]


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.storage_factories import library

with library(Path(sys.argv[1])) as shelf:
    shelf.exchange("ann", "last", "words", question_id="q9", answer_id="a9")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_log_of_a_killed_server_is_kept_too(data_dir: Path, file: Path) -> None:
    conversation_id = fill(data_dir)
    create_backup(data_dir, file)
    _run(["-c", _KILLED, str(data_dir)])
    assert (data_dir / f"{NAME}-wal").stat().st_size > 0
    kept = restore_backup(file, data_dir)
    assert kept is not None
    assert texts(data_dir, conversation_id) == ["question", "kept"]
    with closing(sqlite3.connect(kept)) as connection:
        found = connection.execute("SELECT count(*) FROM messages WHERE text = 'words'")
        assert found.fetchone() == (1,)


@pytest.mark.parametrize("content", [b"", b"no database at all " * 1000, b"SQLite format 3\0"])
def test_files_that_are_no_backup_are_refused(data_dir: Path, file: Path, content: bytes) -> None:
    conversation_id = fill(data_dir)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged|no database of Hearth"):
        restore_backup(file, data_dir)
    assert file.read_bytes() == content
    assert texts(data_dir, conversation_id) == ["question", "kept"]


def test_databases_of_others_and_newer_ones_are_refused(data_dir: Path, file: Path) -> None:
    conversation_id = fill(data_dir)
    create_backup(data_dir, file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(ConfigError, match="newer Hearth"):
        restore_backup(file, data_dir)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA application_id = 7")
    with pytest.raises(ConfigError, match="no database of Hearth"):
        restore_backup(file, data_dir)
    with pytest.raises(ConfigError, match="no file"):
        restore_backup(file.with_name("missing"), data_dir)
    assert texts(data_dir, conversation_id) == ["question", "kept"]


def test_a_damaged_backup_is_refused(data_dir: Path, file: Path) -> None:
    with library(data_dir) as shelf:
        for number in range(50):
            shelf.exchange("ann", f"{number} " * 500, "x")
    create_backup(data_dir, file)
    _damage(file)
    with pytest.raises(ConfigError, match="damaged"):
        restore_backup(file, data_dir)
    open_database(data_dir).close()


def test_a_damaged_database_is_replaced(data_dir: Path, file: Path) -> None:
    conversation_id = fill(data_dir)
    create_backup(data_dir, file)
    (data_dir / NAME).write_bytes(b"rubbish" * 1000)
    with pytest.raises(ConfigError, match="make restore"):
        open_database(data_dir)
    restore_backup(file, data_dir)
    assert texts(data_dir, conversation_id) == ["question", "kept"]


def test_a_backup_of_the_first_version_is_upgraded_at_the_next_start(
    data_dir: Path, file: Path
) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(FIRST_VERSION.read_text())
    restore_backup(file, data_dir)
    with library(data_dir) as shelf:
        assert len(shelf.store.search("ann", "hostas")) == 1
    assert (data_dir / f"{NAME}.before-{newest_revision()}").exists()


def test_the_commands(data_dir: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conversation_id = fill(data_dir)
    environment = {"HEARTH_DATA_DIR": str(data_dir)}
    assert main(["create", str(file)], environment) == 0
    assert f"Saved to {file}" in capsys.readouterr().out
    assert main(["create", str(file)], environment) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["create", str(file), "--force"], environment) == 0
    other = data_dir.with_name("other")
    assert main(["restore", str(file), "--data-dir", str(other)], environment) == 0
    assert texts(other, conversation_id) == ["question", "kept"]
    assert main(["restore", str(file)], environment) == 0
    assert "before-restore" in capsys.readouterr().out


def test_the_usual_place_is_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["create", "--help"], {})
    assert ".local/share/hearth" in capsys.readouterr().out


def test_the_module_runs_as_a_command(data_dir: Path, file: Path) -> None:
    fill(data_dir)
    arguments = ["-m", "ui.backup", "create", str(file), "--data-dir", str(data_dir)]
    first, second = _run(arguments), _run(arguments)
    assert (first.returncode, first.stderr) == (0, "")
    assert second.returncode == 2
    assert second.stderr.strip().endswith("--force.")


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[10 * 4096 : 20 * 4096] = b"\x5a" * (10 * 4096)
    path.write_bytes(content)
