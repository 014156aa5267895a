"""Opens the disk cache that the settings ask for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from engine.kv.block_file import BlockFormat
from engine.kv.disk_directory import Contents, DiskDirectory, on_disk
from engine.kv.disk_tier import DiskTier
from engine.kv.disk_worker import DiskWorker

_log = logging.getLogger(__name__)


class DiskCache(NamedTuple):
    tier: DiskTier
    worker: DiskWorker


def open_disk_cache(path: Path, block_format: BlockFormat, max_bytes: int) -> DiskCache | None:
    """None, and one line in the log, where the directory cannot be used: serving goes on."""
    try:
        directory, (own, foreign) = _opened(path, block_format)
    except BlockingIOError:
        _log.warning("%s is used by another server: this one goes on without a disk cache", path)
        return None
    except OSError as error:
        _log.warning("This server goes on without a disk cache: %s", error)
        return None
    worker = DiskWorker(directory)
    num_file_bytes = on_disk(block_format.num_file_bytes)
    tier = DiskTier(worker, max_bytes, num_file_bytes, found=own, foreign=foreign)
    _log.info("The disk cache in %s has %d blocks of this model", path, len(tier))
    return DiskCache(tier, worker)


def _opened(path: Path, block_format: BlockFormat) -> tuple[DiskDirectory, Contents]:
    directory = DiskDirectory(path, block_format)
    try:
        return directory, directory.contents()
    except OSError:
        directory.close()  # another server may have more luck
        raise
