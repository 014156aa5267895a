"""Which files count, who may use the directory, and who can read it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from engine.kv.block_file import BlockFormat, encode_block
from engine.kv.disk_directory import DiskDirectory
from engine.kv.hashing import PrefixHashes
from engine.kv.owners import SHARED, owner_of

FORMAT = BlockFormat("model/int8", 4, 100)
TOKENS = list(range(40))
HASHES = PrefixHashes("model/int8", 4, "")


def write(directory: DiskDirectory, index: int, used_s: float, owner: str = SHARED) -> Path:
    key = HASHES.key(TOKENS, index)
    path = directory.path / directory.file_of(key, owner).name
    path.write_bytes(b"".join(encode_block(directory.block_format, key, bytes(100))))
    os.utime(path, (used_s, used_s))
    return path


def test_files_are_found_by_age_with_what_their_names_say(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FORMAT)
    for index, used_s in ((0, 30.0), (1, 10.0), (2, 20.0)):
        write(directory, index, used_s, owner_of(f"c{index}"))
    own, foreign = directory.contents()
    assert [block.block_hash for block in own] == [HASHES.at(TOKENS, i) for i in (1, 2, 0)]
    assert own[2].parent_hash == HASHES.root
    assert own[0].parent_hash == HASHES.at(TOKENS, 0)
    assert [block.owner for block in own] == [owner_of(f"c{i}") for i in (1, 2, 0)]
    assert own[0].file.num_bytes == 4096  # what it takes up
    assert foreign == []
    directory.close()


def test_files_of_other_models_are_kept_apart(tmp_path: Path) -> None:
    other = DiskDirectory(tmp_path, BlockFormat("another/int8", 4, 100))
    path = write(other, 0, 5.0, owner_of("c1"))
    other.close()
    directory = DiskDirectory(tmp_path, FORMAT)
    own, foreign = directory.contents()
    assert (own, [tmp_path / item.file.name for item in foreign]) == ([], [path])
    assert [item.owner for item in foreign] == [owner_of("c1")]
    assert path.exists()
    directory.close()


def test_a_truncated_file_is_ignored_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = DiskDirectory(tmp_path, FORMAT)
    path = write(directory, 0, 5.0)
    path.write_bytes(path.read_bytes()[:-9])
    with caplog.at_level(logging.WARNING):
        assert directory.contents().own == []
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} is truncated and ignored"
    ]
    directory.close()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FORMAT)
    folder = write(directory, 0, 5.0).parent
    (tmp_path / "photos").mkdir()
    strangers = [tmp_path / "photos" / "x.kv", folder / "notes.txt", tmp_path / "a.kv"]
    for path in strangers:
        path.write_text("precious")
    (folder / "left over.tmp").write_text("")
    assert len(directory.contents().own) == 1
    assert all(path.exists() for path in strangers)
    assert not (folder / "left over.tmp").exists()
    directory.close()


def test_one_engine_at_a_time(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path, FORMAT)
    with pytest.raises(BlockingIOError):
        DiskDirectory(tmp_path, FORMAT)
    directory.close()
    DiskDirectory(tmp_path, FORMAT).close()


def test_nobody_else_may_look_into_it(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path / "new" / "cache", FORMAT)
    modes = [path.stat().st_mode & 0o777 for path in directory.path.iterdir() if path.is_dir()]
    assert (directory.path.stat().st_mode & 0o777, modes) == (0o700, [0o700])
    directory.close()
