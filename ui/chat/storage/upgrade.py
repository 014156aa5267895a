"""Brings a database up to this version's tables, once what is there has been found sound."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from engine import ConfigError
from ui.chat.storage.connections import WRITES

APPLICATION_ID = 0x48525448  # marks our files; set by the first migration
_MIGRATIONS = Path(__file__).parent / "migrations"
_MAX_CHECKED_BYTES = 1024**3  # the check reads all of a file: a second or two for this much


def upgrade_database(engine: Engine, path: Path) -> None:
    """Raises ConfigError: it is damaged, not ours, or of a newer version; then it is left alone."""
    try:
        with engine.connect() as connection:
            _check_sound(connection, path)
            revision = revision_of(connection)
            if revision is None:
                _check_empty(connection, path)
        config = _alembic_config()
        if revision is not None:
            _check_known(config, revision, path)
        newest = newest_revision()
        if revision == newest:
            return
        if revision is not None:
            _keep_copy(path, path.with_name(f"{path.name}.before-{newest}"))
        with engine.connect().execution_options(**{WRITES: True}) as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except (DBAPIError, sqlite3.DatabaseError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise ConfigError(damage_sentence(path, str(reason))) from None


def newest_revision() -> str:
    revision = ScriptDirectory.from_config(_alembic_config()).get_current_head()
    assert revision is not None
    return revision


def known_revisions() -> frozenset[str]:
    script = ScriptDirectory.from_config(_alembic_config())
    return frozenset(item.revision for item in script.walk_revisions())


def revision_of(connection: Connection) -> str | None:
    """None: no tables of ours."""
    found = connection.exec_driver_sql(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    )
    if found.first() is None:
        return None
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if revision is None else str(revision)


def damage_sentence(path: Path, reason: str) -> str:
    return (
        f"The database {path} cannot be used ({reason}). It was left as it is. Move it away and "
        "bring back a backup with: make restore FILE=your-backup.sqlite3"
    )


def _alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _check_sound(connection: Connection, path: Path) -> None:
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if mode != "wal":
        raise ConfigError(
            f"{path} is on a disk that cannot keep a database safe (its journal is {mode!r}): "
            "choose a directory on a local disk with --data-dir."
        )
    if path.stat().st_size <= _MAX_CHECKED_BYTES:
        verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if verdict != "ok":
            raise ConfigError(damage_sentence(path, str(verdict)))


def _check_empty(connection: Connection, path: Path) -> None:
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master").first() is not None:
        raise ConfigError(
            f"{path} is a database of another program: choose another directory with --data-dir."
        )


def _check_known(config: Config, revision: str, path: Path) -> None:
    if revision not in known_revisions():
        raise ConfigError(
            f"The database {path} was written by a newer Hearth (its version is {revision[:40]!r}, "
            f"the newest known here {newest_revision()!r}): use that Hearth again, or choose "
            "another directory with --data-dir."
        )


def _keep_copy(path: Path, copy: Path) -> None:
    """Whole or not at all, so that an upgrade that goes wrong has a way back."""
    unfinished = copy.with_name(copy.name + ".unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as target:
        source.backup(target)
    unfinished.replace(copy)
