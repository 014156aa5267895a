"""The folder that holds everything people wrote, and the lock that one server has on it."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock, Timeout

from engine import ConfigError

DATABASE_NAME = "hearth.sqlite3"
_LOCK_NAME = "hearth.lock"


def prepare_data_dir(data_dir: Path) -> Path:
    """Make the folder where it is missing, for this account alone; gives the database's path.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The data directory {data_dir} cannot be made ({error.strerror or error}): choose "
            "another with --data-dir."
        ) from None
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise ConfigError(
            f"This account may not write to the data directory {data_dir}: choose another with "
            "--data-dir, or change its owner."
        )
    return data_dir / DATABASE_NAME


def lock_data_dir(data_dir: Path) -> FileLock:
    """Taken until `release()`, or until the process ends however it does.

    Raises:
        ConfigError: a server, or a restore, uses this folder.
    """
    lock = FileLock(data_dir / _LOCK_NAME, timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"Another Hearth server uses the data directory {data_dir}: stop it first, or choose "
            "another directory with --data-dir."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"The data directory {data_dir} cannot be locked ({error.strerror or error}): choose "
            "one on a local disk with --data-dir."
        ) from None
    return lock
