"""The directory of the disk cache: who may use it, and which files are there.

    DIR/lock                              held by the one engine that uses the directory
    DIR/FORMAT/HASH-PARENT-OWNER.kv       a block; FORMAT is a digest of model, scheme and layout

Anything else in it is left alone. Files are looked at by name, size and time only.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.kv.block_file import BlockFormat
from engine.kv.disk_tier import BlockFile, ForeignFile, OwnFile
from engine.kv.hashing import BlockHash, BlockKey

_FORMAT_NAME = re.compile(r"[0-9a-f]{32}")
_BLOCK_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})-([0-9a-f]{16})\.kv")
_CLUSTER_BYTES = 4096  # files take up whole ones
_log = logging.getLogger(__name__)


class Contents(NamedTuple):
    """The least recently used first."""

    own: list[OwnFile]
    foreign: list[ForeignFile]


class _Seen(NamedTuple):
    name: str
    num_bytes: int
    used_s: float


class DiskDirectory:
    """Locked as long as it is open.

    Raises:
        OSError: it cannot be made, written or locked.
    """

    def __init__(self, path: Path, block_format: BlockFormat) -> None:
        self.path = path
        self.block_format = block_format
        self._own = block_format.digest()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (path / self._own).mkdir(mode=0o700, exist_ok=True)
            if not os.access(path / self._own, os.W_OK | os.X_OK):
                raise PermissionError(f"{path / self._own} cannot be written to")
        except OSError:
            os.close(self._lock)
            raise

    def close(self) -> None:
        os.close(self._lock)

    def contents(self) -> Contents:
        """What is there. Leftovers of a write that was cut are removed."""
        own: list[OwnFile] = []
        foreign: list[ForeignFile] = []
        for seen in sorted(self._blocks(), key=lambda seen: seen.used_s):
            file = BlockFile(seen.name, on_disk(seen.num_bytes))
            if not seen.name.startswith(self._own):
                foreign.append(ForeignFile(_parts(file).owner, file))
            elif seen.num_bytes == self.block_format.num_file_bytes:
                own.append(_own_file(file))
            else:
                _log.warning("%s is truncated and ignored", self.path / seen.name)
                (self.path / seen.name).unlink(missing_ok=True)
        return Contents(own, foreign)

    def file_of(self, key: BlockKey, owner: str) -> BlockFile:
        name = f"{self._own}/{key.block_hash.hex()}-{key.parent_hash.hex()}-{owner}.kv"
        return BlockFile(name, on_disk(self.block_format.num_file_bytes))

    def is_own(self, file: BlockFile) -> bool:
        return file.name.startswith(self._own)

    def _blocks(self) -> Iterator[_Seen]:
        for folder in self.path.iterdir():
            if not (_FORMAT_NAME.fullmatch(folder.name) and folder.is_dir()):
                continue
            for entry in os.scandir(folder):
                if entry.name.endswith(".tmp") and folder.name == self._own:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
                elif _BLOCK_NAME.fullmatch(entry.name):
                    status = entry.stat()
                    name = f"{folder.name}/{entry.name}"
                    yield _Seen(name, status.st_size, status.st_mtime)


def on_disk(num_bytes: int) -> int:
    return -(-num_bytes // _CLUSTER_BYTES) * _CLUSTER_BYTES


class _Parts(NamedTuple):
    block_hash: str
    parent_hash: str
    owner: str


def _parts(file: BlockFile) -> _Parts:
    match = _BLOCK_NAME.fullmatch(file.name.rpartition("/")[2])
    assert match is not None, f"{file.name} is no block's name"
    return _Parts(*match.groups())


def _own_file(file: BlockFile) -> OwnFile:
    parts = _parts(file)
    block_hash, parent_hash = (bytes.fromhex(digest) for digest in parts[:2])
    return OwnFile(BlockHash(block_hash), BlockHash(parent_hash), parts.owner, file)
