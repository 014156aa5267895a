"""Saving the database to a file, and putting a saved one back.

python -m ui.backup create FILE [--data-dir D] [--force]     also while the server runs
python -m ui.backup restore FILE [--data-dir D]              while it is stopped
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from engine import ConfigError
from ui.chat.storage.data_dir import DATABASE_NAME, lock_data_dir, prepare_data_dir
from ui.chat.storage.upgrade import APPLICATION_ID, known_revisions
from ui.server_config import ServerConfig

_BUSY_TIMEOUT_S = 60.0


def create_backup(data_dir: Path, file: Path, *, is_forced: bool = False) -> int:
    """A whole and checked copy of the database as it is at one moment; gives its size in bytes.

    Raises:
        ConfigError: there is nothing to save, the file exists, or it cannot be written.
    """
    source_path = data_dir / DATABASE_NAME
    if not source_path.is_file():
        raise ConfigError(f"There is no database in {data_dir}: name its folder with --data-dir.")
    if file.exists() and not is_forced:
        raise ConfigError(f"{file} exists already: choose another name, or add --force.")
    if file.exists() and file.samefile(source_path):
        raise ConfigError(f"{file} is the database itself: choose another name.")
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        _copy(source_path, unfinished)
        _check(unfinished)
        unfinished.replace(file)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"The backup {file} could not be written ({error}).") from None
    finally:
        _remove(unfinished)
    return file.stat().st_size


def restore_backup(file: Path, data_dir: Path) -> Path | None:
    """Put a backup in the database's place; gives where the replaced database is kept.

    Raises:
        ConfigError: the file is no whole database of Hearth's, or a server is running.
    """
    if not file.is_file():
        raise ConfigError(f"There is no file {file}.")
    target = prepare_data_dir(data_dir)
    lock = lock_data_dir(data_dir)
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        if target.exists() and file.samefile(target):
            raise ConfigError(f"{file} is the database in use: name a backup.")
        _check(file)
        _copy(file, unfinished)
        replaced = _set_aside(target)
        unfinished.replace(target)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"{file} could not be restored ({error}).") from None
    finally:
        _remove(unfinished)
        lock.release()
    return replaced


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """0: done, 2: refused, with a sentence why."""
    chosen = _parser(environment).parse_args(arguments)
    data_dir = Path(chosen.data_dir).expanduser()
    try:
        if chosen.action == "create":
            size_bytes = create_backup(data_dir, chosen.file, is_forced=chosen.force)
            _say(f"Saved to {chosen.file} ({size_bytes / 1024**2:.1f} MB).")
        else:
            replaced = restore_backup(chosen.file, data_dir)
            kept = "" if replaced is None else f" What was there before is kept in {replaced}."
            _say(f"Restored {chosen.file} to {data_dir}.{kept}")
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command's answer
        return 2
    return 0


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    usual = environment.get("HEARTH_DATA_DIR") or str(ServerConfig().data_dir)
    parser = argparse.ArgumentParser(prog="python -m ui.backup", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", required=True)
    for name, what in (("create", "save the database"), ("restore", "put a backup back")):
        action = actions.add_parser(name, help=what)
        action.add_argument("file", type=Path, metavar="FILE")
        action.add_argument(
            "--data-dir", default=usual, help=f"where the database is [{usual}] (HEARTH_DATA_DIR)"
        )
        if name == "create":
            action.add_argument("--force", action="store_true", help="replace FILE where it exists")
    return parser


def _say(line: str) -> None:
    print(line)  # noqa: T201 - a command's answer


def _copy(source_path: Path, target_path: Path) -> None:
    """Readable for this account alone, since it holds what people wrote."""
    _remove(target_path)
    target_path.touch(mode=0o600)
    with (
        closing(sqlite3.connect(source_path, timeout=_BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(target_path)) as target,
    ):
        source.backup(target)
        # A copy is one file: it has no log beside it, which would have to travel along.
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
    _sync(target_path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(path: Path) -> None:
    """Raises ConfigError: damaged, of another program, or of a newer Hearth."""
    # Not to be changed by looking at it: even a log beside it stays unread.
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
            if application_id != APPLICATION_ID:
                raise ConfigError(f"{path} is no database of Hearth's.")
            verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path} is damaged, or no database of Hearth's ({error}).") from None
    if verdict != "ok":
        raise ConfigError(f"{path} is damaged ({verdict}).")
    if revision is None or revision[0] not in known_revisions():
        raise ConfigError(f"{path} comes from a newer Hearth: restore it with that one.")


def _set_aside(target: Path) -> Path | None:
    """A second, free name for the database, and its log moved there: at no time is there none."""
    if not target.exists():
        return None
    replaced = target.with_name(f"{target.name}.before-restore")
    number = 1
    while replaced.exists():
        number += 1
        replaced = target.with_name(f"{target.name}.before-restore-{number}")
    replaced.hardlink_to(target)
    for ending in ("-wal", "-shm"):
        part = target.with_name(target.name + ending)
        if part.exists():
            part.replace(replaced.with_name(replaced.name + ending))
    return replaced


def _remove(path: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
