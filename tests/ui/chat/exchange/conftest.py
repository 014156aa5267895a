from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage_factories import Library, library


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Library]:
    with library(tmp_path / "data") as opened:
        yield opened
