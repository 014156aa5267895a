"""The thread that reads, writes and deletes the files of the disk cache."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from engine.kv.block_file import BlockFileError, decode_block, encode_block
from engine.kv.disk_directory import DiskDirectory
from engine.kv.disk_tier import BlockFile, ReadDone, WriteDone
from engine.kv.hashing import BlockKey

_log = logging.getLogger(__name__)


class _Work(NamedTuple):
    run: Callable[[], None]
    is_deletion: bool = False


class DiskWorker:
    """Implements DiskStore. Reads go first, since a request waits for each of them.

    Where writing fails, one line says so and nothing is written any more; reading goes on.
    """

    def __init__(self, directory: DiskDirectory) -> None:
        self._directory = directory
        self._changed = threading.Condition()
        self._reads: deque[_Work] = deque()
        self._others: deque[_Work] = deque()
        self._results: list[ReadDone | WriteDone] = []
        self._pending_bytes = 0
        self._is_working = False
        self._is_closing = False
        self._is_quiet = False
        self._thread = threading.Thread(target=self._run, name="hearth-disk-cache", daemon=True)
        self._thread.start()

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    @property
    def is_quiet(self) -> bool:
        return self._is_quiet

    def file_of(self, key: BlockKey, owner: str) -> BlockFile:
        return self._directory.file_of(key, owner)

    def read(self, file: BlockFile, key: BlockKey, age_s: float) -> None:
        self._post(self._reads, _Work(lambda: self._read(file, key, age_s)))

    def write(self, file: BlockFile, key: BlockKey, payload: bytes, age_s: float) -> None:
        with self._changed:
            self._pending_bytes += file.num_bytes
        self._post(self._others, _Work(lambda: self._write(file, key, payload, age_s)))

    def refresh(self, file: BlockFile, age_s: float) -> None:
        self._post(self._others, _Work(lambda: self._set_age(file, age_s)))

    def delete(self, file: BlockFile) -> None:
        self._post(self._others, _Work(lambda: self._delete(file), is_deletion=True))

    def results(self) -> list[ReadDone | WriteDone]:
        with self._changed:
            results, self._results = self._results, []
            return results

    def wait(self, timeout_s: float) -> None:
        """Return when there are results, or after that time."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._results), timeout_s)

    def wait_for_room(self, num_bytes: int, timeout_s: float) -> bool:
        """Until at most so many bytes wait to be written; False: they still do."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending_bytes <= num_bytes, timeout_s)

    def finish(self, timeout_s: float) -> bool:
        """Until nothing is left to do; False: there is something."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_s)

    def close(self) -> None:
        """Delete what is to be deleted, leave the rest, and give the directory free.

        May be called again.
        """
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        self._directory.close()

    def _is_idle(self) -> bool:
        return not (self._reads or self._others or self._is_working)

    def _post(self, queue: deque[_Work], work: _Work) -> None:
        with self._changed:
            queue.append(work)
            self._changed.notify_all()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work.run()
            except Exception:
                _log.exception("The disk cache failed at a file")
            with self._changed:
                self._is_working = False
                self._changed.notify_all()

    def _next(self) -> _Work | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or self._reads or self._others)
            if self._is_closing:
                self._reads.clear()
                self._others = deque(work for work in self._others if work.is_deletion)
            if not (self._reads or self._others):
                return None
            self._is_working = True
            return (self._reads or self._others).popleft()

    def _done(self, result: ReadDone | WriteDone) -> None:
        with self._changed:
            self._results.append(result)
            self._changed.notify_all()

    def _read(self, file: BlockFile, key: BlockKey, age_s: float) -> None:
        path = self._directory.path / file.name
        payload: bytes | None = None
        try:
            payload = decode_block(self._directory.block_format, key, path.read_bytes())
        except FileNotFoundError:  # it was evicted meanwhile
            pass
        except (OSError, BlockFileError) as error:
            _log.warning("%s %s; it is ignored", path, error)
        finally:
            self._done(ReadDone(key, payload))
        self._set_age(file, age_s)

    def _write(self, file: BlockFile, key: BlockKey, payload: bytes, age_s: float) -> None:
        was_written = False
        try:
            if not self._is_quiet:
                self._write_now(file, encode_block(self._directory.block_format, key, payload))
                self._set_age(file, age_s)
                was_written = True
        except OSError as error:
            self._is_quiet = True
            _log.warning(
                "The disk cache cannot be written and takes no more blocks until the next start: "
                "%s",
                error,
            )
        finally:
            with self._changed:
                self._pending_bytes -= file.num_bytes
            self._done(WriteDone(key.block_hash, was_written))

    def _write_now(self, file: BlockFile, parts: list[bytes]) -> None:
        """All or nothing: other names than the final one are never read."""
        path = self._directory.path / file.name
        unfinished = path.with_suffix(".tmp")
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb", buffering=0) as stream:
                for part in parts:
                    _write_all(stream.fileno(), part)
            unfinished.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    def _set_age(self, file: BlockFile, age_s: float) -> None:
        used_s = time.time() - age_s
        with contextlib.suppress(OSError):
            os.utime(self._directory.path / file.name, (used_s, used_s))

    def _delete(self, file: BlockFile) -> None:
        path = self._directory.path / file.name
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            if not self._directory.is_own(file):
                path.parent.rmdir()  # if it was the last one


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
