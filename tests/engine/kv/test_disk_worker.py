"""The thread of the disk cache: what it reads, in which order it works, and how it fails."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.kv import disk_worker
from engine.kv.block_file import BlockFormat
from engine.kv.disk_directory import DiskDirectory
from engine.kv.disk_tier import BlockFile, ReadDone, WriteDone
from engine.kv.disk_worker import DiskWorker
from engine.kv.hashing import PrefixHashes
from engine.kv.owners import SHARED

FORMAT = BlockFormat("model/int8", 4, 100)
TOKENS = list(range(40))
HASHES = PrefixHashes("model/int8", 4, "")
KEYS = [HASHES.key(TOKENS, index) for index in range(6)]
PAYLOAD = bytes(range(100))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[DiskWorker]:
    worker = DiskWorker(DiskDirectory(tmp_path, FORMAT))
    yield worker
    worker.close()


def written(worker: DiskWorker, index: int = 0) -> BlockFile:
    file = worker.file_of(KEYS[index], SHARED)
    worker.write(file, KEYS[index], PAYLOAD, 0.0)
    assert worker.finish(10)
    return file


def test_what_was_written_is_read_and_nobody_else_can_read_it(
    worker: DiskWorker, tmp_path: Path
) -> None:
    file = written(worker)
    worker.read(file, KEYS[0], 0.0)
    assert worker.finish(10)
    assert worker.results() == [WriteDone(KEYS[0].block_hash, True), ReadDone(KEYS[0], PAYLOAD)]
    assert (tmp_path / file.name).stat().st_mode & 0o777 == 0o600
    assert worker.pending_bytes == 0


def test_a_damaged_file_is_ignored_with_one_line(
    worker: DiskWorker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(worker)
    content = bytearray((tmp_path / file.name).read_bytes())
    content[-30] ^= 1
    (tmp_path / file.name).write_bytes(content)
    worker.results()
    with caplog.at_level(logging.WARNING):
        worker.read(file, KEYS[0], 0.0)
        assert worker.finish(10)
    assert worker.results() == [ReadDone(KEYS[0], None)]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / file.name} is damaged; it is ignored"
    ]


def test_a_file_that_has_gone_is_a_miss(worker: DiskWorker) -> None:
    worker.read(worker.file_of(KEYS[0], SHARED), KEYS[0], 0.0)
    assert worker.finish(10)
    assert worker.results() == [ReadDone(KEYS[0], None)]


def test_reads_go_before_writes_and_a_deletion_after_its_write(
    worker: DiskWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = written(worker, 0), worker.file_of(KEYS[1], SHARED)
    worker.results()
    may_go, has_begun = threading.Event(), threading.Event()
    write_all = disk_worker._write_all

    def slow(descriptor: int, content: bytes) -> None:
        has_begun.set()
        assert may_go.wait(10)
        write_all(descriptor, content)

    monkeypatch.setattr(disk_worker, "_write_all", slow)
    worker.write(worker.file_of(KEYS[2], SHARED), KEYS[2], PAYLOAD, 0.0)
    assert has_begun.wait(10)
    worker.write(gone, KEYS[1], PAYLOAD, 0.0)
    worker.delete(gone)
    worker.read(kept, KEYS[0], 0.0)
    may_go.set()
    assert worker.finish(10)
    assert [type(result) for result in worker.results()] == [WriteDone, ReadDone, WriteDone]
    assert not (tmp_path / gone.name).exists()


def test_on_a_full_disk_it_goes_quiet_with_one_line_and_still_reads(
    worker: DiskWorker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = written(worker)
    worker.results()

    def full(descriptor: int, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_worker, "_write_all", full)
    with caplog.at_level(logging.WARNING):
        for index in (1, 2, 3):
            worker.write(worker.file_of(KEYS[index], SHARED), KEYS[index], PAYLOAD, 0.0)
        worker.read(file, KEYS[0], 0.0)
        assert worker.finish(10)
    assert worker.is_quiet
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    results = worker.results()
    assert [r.was_written for r in results if isinstance(r, WriteDone)] == [False] * 3
    assert ReadDone(KEYS[0], PAYLOAD) in results
    assert [path.suffix for path in (tmp_path / file.name).parent.iterdir()] == [".kv"]


def test_age_is_kept_in_the_files_time(worker: DiskWorker, tmp_path: Path) -> None:
    files = [worker.file_of(key, SHARED) for key in KEYS[:2]]
    worker.write(files[0], KEYS[0], PAYLOAD, 1000.0)
    worker.write(files[1], KEYS[1], PAYLOAD, 0.0)
    assert worker.finish(10)
    old, new = ((tmp_path / file.name).stat().st_mtime for file in files)
    assert 900 < new - old < 1100
    worker.refresh(files[0], 0.0)
    assert worker.finish(10)
    assert (tmp_path / files[0].name).stat().st_mtime >= new


def test_closing_deletes_what_is_to_be_deleted_and_unlocks(tmp_path: Path) -> None:
    worker = DiskWorker(DiskDirectory(tmp_path, FORMAT))
    files = [written(worker, index) for index in range(6)]
    for file in files:
        worker.delete(file)
    worker.close()
    worker.close()
    assert not any((tmp_path / file.name).exists() for file in files)
    DiskDirectory(tmp_path, FORMAT).close()


def test_an_emptied_folder_of_another_model_goes(tmp_path: Path) -> None:
    other = DiskWorker(DiskDirectory(tmp_path, BlockFormat("another", 4, 100)))
    file = other.file_of(KEYS[0], SHARED)
    other.write(file, KEYS[0], PAYLOAD, 0.0)
    assert other.finish(10)
    other.close()
    worker = DiskWorker(DiskDirectory(tmp_path, FORMAT))
    worker.delete(file)
    assert worker.finish(10)
    worker.close()
    assert len(os.listdir(tmp_path)) == 2  # the lock and its own folder
