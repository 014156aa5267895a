"""The vendored libraries are the ones that are listed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[1] / "assets" / "vendor"


def test_the_vendored_files_are_the_listed_ones() -> None:
    listed = dict(
        re.findall(
            r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|", (VENDOR / "README.md").read_text(), re.M
        )
    )
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert found == listed
