"""What is kept on disk when the engine stops, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.block_keeper import BlockKeeper
from engine.disk_cache import open_disk_cache
from engine.kv.block_file import BlockFormat
from engine.kv.disk_worker import DiskWorker
from engine.kv.hashing import PrefixHashes
from engine.kv.owners import SHARED
from engine.kv.tiers import WarmBlock
from tests.fake_runner import FakeMover

BLOCK_SIZE = 4
TOKENS = list(range(BLOCK_SIZE * 6))
HASHES = PrefixHashes("model", BLOCK_SIZE, "")
WARM = [WarmBlock(HASHES.key(TOKENS, index), SHARED, index, None) for index in range(6)]


def test_new_blocks_are_written_before_old_ones_are_marked_as_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marking a hundred thousand files takes longer than a stop may."""
    slots = {(block, offset): block for block in range(6) for offset in range(BLOCK_SIZE)}
    mover = FakeMover(slots, BLOCK_SIZE, 0)
    cache = open_disk_cache(
        tmp_path, BlockFormat("model", BLOCK_SIZE, mover.block_nbytes), 6 * 4096
    )
    assert cache is not None
    for block in WARM[:3]:
        cache.tier.put(block.key, SHARED, bytes(mover.block_nbytes))
    assert cache.worker.finish(10)
    done: list[str] = []
    for name in ("write", "refresh"):
        post = getattr(DiskWorker, name)

        def noted(worker: DiskWorker, *arguments: Any, name: str = name, post: Any = post) -> None:
            done.append(name)
            post(worker, *arguments)

        monkeypatch.setattr(DiskWorker, name, noted)
    keeper = BlockKeeper(mover, cache.tier, cache.worker)
    keeper.keep(WARM)
    keeper.close()
    assert done == ["write"] * 3 + ["refresh"] * 3
    assert len(list(tmp_path.rglob("*.kv"))) == 6
