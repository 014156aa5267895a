"""How many blocks host memory gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.model.host_memory import GIB, num_host_slots


def slots(*, is_cpu: bool, available_gib: float = 100, **settings: Any) -> int:
    return num_host_slots(
        EngineConfig(**settings),
        block_nbytes=GIB // 64,
        is_cpu=is_cpu,
        available_bytes=int(available_gib * GIB),
    )


def test_defaults_follow_the_device_and_what_is_free() -> None:
    assert slots(is_cpu=False) == 4 * 64
    assert slots(is_cpu=False, available_gib=8) == 2 * 64
    assert slots(is_cpu=True) == 0
    assert slots(is_cpu=True, disk_cache=Path("/c")) == 64
    assert slots(is_cpu=False, enable_prefix_caching=False) == 0


def test_what_is_asked_for_is_given_on_any_device() -> None:
    assert slots(is_cpu=True, swap_space=0.5) == 32
    assert slots(is_cpu=False, swap_space=0.0) == 0


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--swap-space 12 is more than the 8\.0 GiB"):
        slots(is_cpu=True, swap_space=12.0, available_gib=8)
