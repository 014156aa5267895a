"""Databases of earlier and later versions, and files that are no database of ours."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from engine import ConfigError, FinishReason
from tests.storage_factories import Library, library
from ui.chat.conversation import ContextCut, MessageState, NotFoundError
from ui.chat.settings import ChatSettings
from ui.chat.storage.database import open_database
from ui.chat.storage.tables import METADATA, SEARCH_INDEX
from ui.chat.storage.upgrade import newest_revision

FIRST_VERSION = Path(__file__).parents[3] / "data" / "database-0001.sql"
NAME = "hearth.sqlite3"


@pytest.fixture
def old_data_dir(tmp_path: Path) -> Path:
    """With a database of revision 0001."""
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        connection.executescript(FIRST_VERSION.read_text())
    return tmp_path


def revision_in(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_everything_of_the_first_version_is_there_after_the_upgrade(old_data_dir: Path) -> None:
    with library(old_data_dir) as shelf:
        store = shelf.store
        assert [entry.title for entry in store.entries("ann")] == ["Plants for the garden"]
        assert [entry.title for entry in store.entries("ann", archived=True)] == ["Tax letter"]
        garden = store.conversation("ann", "conv-garden")
        assert garden.is_pinned
        assert garden.settings == ChatSettings("Be brief.", 0.3, 0.9, 40, 0.0, 256, 1.1, 11)
        assert [message.text for message in garden.messages] == [
            "Which plants like shade?",
            "Ivy, and lily of the val",
            "And which ones like the sun?",
            "Lavender; it's 'sun-loving'",
        ]
        assert garden.messages[1].variant_ids == ("g-a1", "g-a1b")
        assert garden.messages[2].cut == ContextCut("g-q2", 2, "They want shade plants.")
        facts = store.message("ann", "g-a1").facts
        assert facts is not None
        assert (facts.finish_reason, facts.ttft_s) == (FinishReason.STOP, 0.4)
        assert shelf.shown("ann", "conv-archived") == [
            "Write a letter to the tax office.\nPolite, please."
        ]
        store.restore_message("ann", "t-a1")
        assert len(shelf.shown("ann", "conv-archived")) == 2
        assert shelf.shown("bob", "conv-bob") == ["怎么学习中文?", "每天读一点。😀"]
        assert shelf.database.secret("cookie") == bytes(range(32))


def test_what_was_written_before_the_upgrade_is_found_after_it(old_data_dir: Path) -> None:
    with library(old_data_dir) as shelf:
        search = shelf.store.search
        assert [hit.message_id for hit in search("ann", "hostas")] == ["g-a1"]
        assert [hit.message_id for hit in search("bob", "学习中文")] == [None, "b-q1"]
        assert [hit.message_id for hit in search("bob", "一点")] == ["b-a1"]
        assert search("ann", "twice") == ()  # still being written
        assert search("ann", "Madam") == ()  # deleted
        assert search("ann", "Secret") == ()  # in a deleted conversation
        assert shelf.store.interrupt_unfinished() == 1
        assert [hit.message_id for hit in search("ann", "twice")] == ["g-a2x"]
        assert shelf.store.message("ann", "g-a2x").state is MessageState.INTERRUPTED


def test_the_upgraded_database_is_worked_with(old_data_dir: Path) -> None:
    with library(old_data_dir) as shelf:
        shelf.store.interrupt_unfinished()
        shelf.exchange("ann", "And in pots?", "Begonias", "conv-garden")
        assert shelf.shown("ann", "conv-garden")[-2:] == ["And in pots?", "Begonias"]
        shelf.store.save_preset("ann", "brief", ChatSettings())
    with library(old_data_dir) as shelf:
        assert shelf.shown("ann", "conv-garden")[-1] == "Begonias"


def test_a_copy_from_before_the_upgrade_is_kept(old_data_dir: Path) -> None:
    open_database(old_data_dir).close()
    copy = old_data_dir / f"{NAME}.before-{newest_revision()}"
    assert (revision_in(copy), revision_in(old_data_dir / NAME)) == ("0001", newest_revision())
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (12,)
    changed = copy.stat().st_mtime_ns
    open_database(old_data_dir).close()
    assert copy.stat().st_mtime_ns == changed


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(old_data_dir: Path) -> None:
    with closing(sqlite3.connect(old_data_dir / NAME)) as connection:
        connection.execute("CREATE TABLE presets (x)")  # in the way of the migration
    with pytest.raises(ConfigError, match="already exists"):
        open_database(old_data_dir)
    with closing(sqlite3.connect(old_data_dir / NAME)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert not any(SEARCH_INDEX in name for name in tables)
        connection.execute("DROP TABLE presets")
    with library(old_data_dir) as shelf:
        assert shelf.store.search("ann", "hostas") != ()


def test_tables_and_migrations_agree(shelf: Library) -> None:
    with shelf.database.reading() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "include_name": lambda name, kind, parents: (
                    not (kind == "table" and name.startswith(SEARCH_INDEX))
                ),
            },
        )
        assert compare_metadata(context, METADATA) == []


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    open_database(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(ConfigError, match="newer Hearth"):
        open_database(tmp_path)
    assert (tmp_path / NAME).read_bytes() == before


def test_a_damaged_file_is_named_with_the_way_back_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"this is not a database, but somebody may still want it" * 100)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=re.escape(str(path))) as refusal:
        open_database(tmp_path)
    assert "make restore FILE=" in str(refusal.value)
    assert path.read_bytes() == before


def test_a_database_with_a_damaged_page_is_refused(tmp_path: Path) -> None:
    with library(tmp_path) as shelf:
        for number in range(50):
            shelf.exchange("ann", f"{number} " * 300, "x")
    path = tmp_path / NAME
    content = bytearray(path.read_bytes())
    for place in range(8 * 4096, 20 * 4096):
        content[place] = 0x5A
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="make restore"):
        open_database(tmp_path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        connection.execute("CREATE TABLE recipes (name)")
    with pytest.raises(ConfigError, match="another program"):
        open_database(tmp_path)
    with library(tmp_path / "own") as shelf, pytest.raises(NotFoundError):
        shelf.store.entry("ann", "nothing-there")
