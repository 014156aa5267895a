"""How every benchmark ends: a table, where it ran, and one line of JSON."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def percentile(values: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        first, *rest = [
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join([first, *rest]))


def environment() -> dict[str, Any]:
    """What a figure needs beside it: command, date, commit, machine."""
    return {
        "command": "python -m " + " ".join([_module_name(), *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()}",
    }


def print_json(result: Mapping[str, Any]) -> None:
    """The last line: the figures, then where they come from. What was not measured is null."""
    known = {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in result.items()
    }
    print(json.dumps({**known, **environment()}))


def _module_name() -> str:
    path = Path(sys.argv[0])
    return f"bench.{path.parent.name if path.stem == '__main__' else path.stem}"


def _commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
