"""Connections to the database file, each set up the same way."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event

_BUSY_TIMEOUT_MS = 10_000
_CACHE_KIB = 8_000
_POOL_SIZE = 8
_POOL_OVERFLOW = 32
WRITES = "hearth_writes"  # execution option: this transaction will write


def connect_to(path: Path) -> Engine:
    """Transactions are real ones: the driver's own habit of starting them late is off."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_OVERFLOW,
        connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000},
        hide_parameters=True,  # errors go to the log, and parameters are what people wrote
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    for pragma in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        "secure_delete = ON",  # what was erased is not left in the file
        f"cache_size = -{_CACHE_KIB}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.create_function("contains_word", 2, _contains_word, deterministic=True)


def _begin(connection: Connection) -> None:
    """A writer takes the write lock at once, or two that read first could not both go on."""
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _contains_word(text: str, folded_word: str) -> bool:
    return folded_word in text.casefold()
