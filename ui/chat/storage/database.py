"""The database of a data directory: opened once by one server, used from any thread."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock
from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError

from engine import ConfigError
from ui.chat.storage.connections import WRITES, connect_to
from ui.chat.storage.data_dir import lock_data_dir, prepare_data_dir
from ui.chat.storage.tables import SECRETS
from ui.chat.storage.upgrade import upgrade_database

_SECRET_BYTES = 32


def open_database(data_dir: Path) -> Database:
    """Make, check and upgrade the database of this directory.

    Raises:
        ConfigError: the directory cannot be used, another server uses it, or its database is
            damaged, of a newer Hearth, or something else altogether.
    """
    path = prepare_data_dir(data_dir)
    lock = lock_data_dir(data_dir)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
        engine = connect_to(path)
        try:
            upgrade_database(engine, path)
        except BaseException:
            engine.dispose()
            raise
    except OSError as error:
        lock.release()
        raise ConfigError(f"{path} cannot be opened ({error.strerror or error}).") from None
    except BaseException:
        lock.release()
        raise
    return Database(path, engine, lock)


class DatabaseClosedError(Exception):
    """It was used after its end."""


class Database:
    """Many may read at a time, one writes; what is read in one block belongs together."""

    def __init__(self, path: Path, engine: Engine, lock: FileLock) -> None:
        self.path = path
        self._engine = engine
        self._lock = lock
        self._write_turn = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Raises DatabaseClosedError, or DBAPIError: it fails."""
        self._check_open()
        with self._engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction: all of it is kept, or, where something is raised, nothing.

        Raises:
            DatabaseClosedError: there is nothing to write to any more.
            DBAPIError: the database fails, e.g. since the disk is full.
        """
        with self._write_turn:
            self._check_open()
            with self._engine.connect() as connection:
                writer = connection.execution_options(**{WRITES: True})
                with writer.begin():
                    yield writer

    def secret(self, name: str) -> bytes:
        """32 random bytes, the same ones whenever this name is asked for."""
        with self.writing() as connection:
            new = insert(SECRETS).values(name=name, value=secrets.token_bytes(_SECRET_BYTES))
            connection.execute(new.on_conflict_do_nothing())
            kept = connection.execute(select(SECRETS.c.value).where(SECRETS.c.name == name))
            return bytes(kept.scalar_one())

    def size_bytes(self, connection: Connection) -> int:
        """What is in use; pages that were freed are used again first."""
        pages, free, size = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def empty_log(self) -> None:
        """Move the write-ahead log into the database file, so that nothing old is left in it."""
        with self._write_turn:
            self._check_open()
            self._checkpoint()

    def close(self) -> None:
        """After the writer that is at work. Again does nothing."""
        with self._write_turn:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._checkpoint()
            except DBAPIError:
                pass  # the log stays beside the file and is read at the next start
            finally:
                self._engine.dispose()
                self._lock.release()

    def _checkpoint(self) -> None:
        raw = self._engine.raw_connection()  # outside a transaction
        try:
            raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            raw.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise DatabaseClosedError("The database is closed: the server is stopping.")
