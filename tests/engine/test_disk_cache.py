"""Restarts, deleted conversations and broken disks, on a tiny real model."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine.disk_cache import open_disk_cache
from engine.engine import EngineState
from engine.kv import disk_worker
from engine.kv.block_file import BlockFormat
from engine.kv.disk_directory import Contents, DiskDirectory
from engine.kv.disk_worker import DiskWorker
from engine.process.process_engine import ProcessEngine
from tests.engine_factories import wait_until
from tests.tiered_engine import Answer, answer_of, ask, load_tiny, tiny_engine, tiny_settings
from tests.tiny_models import tiny_model

RNG = random.Random(1)
FIRST = tuple(RNG.randrange(150) for _ in range(60))
SECOND = (*FIRST, *(RNG.randrange(150) for _ in range(9)))


def first_turn(disk: Path, conversation: str = "", **settings: object) -> None:
    with tiny_engine(disk_cache=disk, **settings) as engine:
        answer_of(ask(engine, "first", FIRST, conversation=conversation))


def second_turn(disk: Path | None, **settings: object) -> Answer:
    with tiny_engine(disk_cache=disk, **settings) as engine:
        return answer_of(ask(engine, "second", SECOND))


def block_files(disk: Path) -> list[Path]:
    return sorted(disk.rglob("*.kv"))


def test_after_a_restart_an_old_conversation_goes_on_where_it_was(tmp_path: Path) -> None:
    first_turn(tmp_path)
    assert len(block_files(tmp_path)) == 8  # 60 tokens and 7 of the reply, in blocks of 8
    warm, cold = second_turn(tmp_path), second_turn(None)
    assert (warm.usage.num_cached_tokens, warm.num_disk_tokens) == (56, 56)
    assert (cold.usage.num_cached_tokens, warm.token_ids) == (0, cold.token_ids)


def test_after_a_restart_of_the_engines_process_too(tmp_path: Path) -> None:
    cold = second_turn(None)
    for request_id, prompt in (("first", FIRST), ("second", SECOND)):
        engine = ProcessEngine(tiny_settings(disk_cache=tmp_path), load_tiny)
        engine.start()
        try:
            wait_until(lambda: engine.status().state is not EngineState.LOADING, 120)  # noqa: B023
            answer = answer_of(ask(engine, request_id, prompt))
        finally:
            engine.stop()
    assert answer.num_disk_tokens == 56
    assert answer.token_ids == cold.token_ids


def test_a_killed_process_leaves_directory_and_offsets_to_the_next(tmp_path: Path) -> None:
    """The next is told the context that the pool allows, and so learns other offsets."""
    settings = tiny_settings(disk_cache=tmp_path, kv_cache_dtype="int4", num_gpu_blocks_override=24)
    engine = ProcessEngine(settings, load_tiny)
    engine.start()
    try:
        wait_until(lambda: engine.status().state is not EngineState.LOADING, 120)
        trained = tiny_model("llama").config.max_position_embeddings
        assert engine.model_info().max_model_len < trained
        answers = [answer_of(ask(engine, "first", FIRST))]
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        wait_until(lambda: engine.status().num_restarts == 1, 120)
        answers.append(answer_of(ask(engine, "second", FIRST)))
        stats = engine.stats()
        assert stats is not None
        assert stats.max_disk_bytes > 0  # it has the directory
    finally:
        engine.stop()
    assert [answer.usage.num_output_tokens for answer in answers] == [8, 8]


def test_what_the_host_held_is_kept_too_and_the_warmest_first(tmp_path: Path) -> None:
    room_gib = 12 * 4096 / 1024**3
    with tiny_engine(disk_cache=tmp_path, disk_cache_gib=room_gib) as engine:
        answer_of(ask(engine, "first", FIRST))
        for number in range(8):
            answer_of(ask(engine, str(number), (number, *FIRST)))
        answer_of(ask(engine, "again", FIRST))
    answer = second_turn(tmp_path, disk_cache_gib=room_gib)
    assert answer.num_disk_tokens == 56
    assert len(block_files(tmp_path)) <= 12


def test_while_one_waits_for_a_slow_disk_others_are_answered_and_the_loop_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_turn(tmp_path)
    may_read = threading.Event()
    read = DiskWorker._read

    def slow(worker: DiskWorker, *arguments: Any) -> None:
        assert may_read.wait(10)
        read(worker, *arguments)

    monkeypatch.setattr(DiskWorker, "_read", slow)
    with tiny_engine(disk_cache=tmp_path) as engine:
        assert engine._serving is not None
        core = engine._serving.core
        steps: list[float] = []
        step = core.step

        def counted(*arguments: Any) -> Any:
            steps.append(time.monotonic())
            return step(*arguments)

        monkeypatch.setattr(core, "step", counted)
        old = ask(engine, "old", SECOND)
        wait_until(lambda: len(steps) > 10)
        assert steps[10] - steps[0] > 0.08  # ten milliseconds each
        assert answer_of(ask(engine, "new", FIRST[::-1])).usage.num_output_tokens == 8
        may_read.set()
        assert answer_of(old).num_disk_tokens == 56


@pytest.mark.parametrize("damage", ["truncated", "changed", "foreign"])
def test_a_broken_file_is_ignored_with_one_line(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first_turn(tmp_path)
    files = block_files(tmp_path)
    content = files[3].read_bytes()
    other = files[4].read_bytes()
    broken = {"truncated": content[:-5], "changed": content[:-5] + b"wrong", "foreign": other}
    files[3].write_bytes(broken[damage])
    with caplog.at_level(logging.WARNING):
        warm = second_turn(tmp_path)
    assert warm.usage.num_cached_tokens < 56
    assert warm.token_ids == second_turn(None).token_ids
    lines = [record for record in caplog.records if files[3].name in record.getMessage()]
    assert len(lines) == 1


def test_another_models_blocks_are_not_used(tmp_path: Path) -> None:
    first_turn(tmp_path)
    warm = second_turn(tmp_path, model="7")
    assert warm.usage.num_cached_tokens == 0
    assert warm.token_ids == second_turn(None, model="7").token_ids
    assert second_turn(tmp_path).usage.num_cached_tokens == 56


def test_another_format_is_not_used(tmp_path: Path) -> None:
    first_turn(tmp_path)
    assert second_turn(tmp_path, kv_cache_dtype="none").usage.num_cached_tokens == 0
    assert second_turn(tmp_path, block_size=16).usage.num_cached_tokens == 0


def test_a_forgotten_conversation_leaves_nothing_in_any_tier(tmp_path: Path) -> None:
    first_turn(tmp_path, conversation="c1")
    with tiny_engine(disk_cache=tmp_path) as engine:
        answer_of(ask(engine, "second", SECOND, conversation="c1"))
        answer_of(ask(engine, "other", SECOND[::-1], conversation="c2"))
        engine.forget(["c1"])
        again = answer_of(ask(engine, "again", SECOND))
        assert again.usage.num_cached_tokens == 0
        kept = answer_of(ask(engine, "other again", SECOND[::-1]))
        assert kept.usage.num_cached_tokens > 50


def test_what_is_forgotten_just_before_the_stop_is_not_kept(tmp_path: Path) -> None:
    with tiny_engine(disk_cache=tmp_path) as engine:
        stream = ask(engine, "first", FIRST, 100, conversation="c1")
        next(iter(stream))
        engine.forget(["c1"])
    assert block_files(tmp_path) == []


def test_what_another_format_kept_of_a_forgotten_conversation_goes_too(tmp_path: Path) -> None:
    first_turn(tmp_path, conversation="c1", kv_cache_dtype="none")
    assert block_files(tmp_path)
    with tiny_engine(disk_cache=tmp_path) as engine:
        engine.forget(["c1"])
    assert block_files(tmp_path) == []


def test_a_directory_that_cannot_be_listed_is_not_kept_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(directory: DiskDirectory) -> Contents:
        raise OSError(5, "Input/output error")

    block_format = BlockFormat("model/int8", 8, 100)
    with monkeypatch.context() as patch:
        patch.setattr(DiskDirectory, "contents", fail)
        assert open_disk_cache(tmp_path, block_format, 4096) is None
    cache = open_disk_cache(tmp_path, block_format, 4096)
    assert cache is not None
    cache.worker.close()


def test_a_full_disk_leaves_serving_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_worker, "_write_all", full)
    with (
        caplog.at_level(logging.WARNING),
        tiny_engine(disk_cache=tmp_path, swap_space=0.0003) as engine,
    ):
        for number in range(6):
            answer_of(ask(engine, str(number), (number, *FIRST)))
        again = answer_of(ask(engine, "again", (5, *SECOND)))
    assert again.usage.num_cached_tokens > 50
    assert len([r for r in caplog.records if "takes no more blocks" in r.getMessage()]) == 1


def test_two_engines_on_one_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tiny_engine(disk_cache=tmp_path), caplog.at_level(logging.WARNING):
        second = second_turn(tmp_path)
    assert second.usage.num_output_tokens == 8
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} is used by another server: this one goes on without a disk cache"
    ]


def test_a_directory_that_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        answer = second_turn(tmp_path / "file" / "cache")
    assert answer.usage.num_output_tokens == 8
    assert len(caplog.records) == 1
    assert "goes on without a disk cache" in caplog.text


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    """However it ends: the next engine takes the directory over."""
    script = (
        "import os, sys; from pathlib import Path\n"
        "from engine.kv.block_file import BlockFormat\n"
        "from engine.kv.disk_directory import DiskDirectory\n"
        "DiskDirectory(Path(sys.argv[1]), BlockFormat('m', 4, 10)); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    first_turn(tmp_path)
    assert len(block_files(tmp_path)) == 8
