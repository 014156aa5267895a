"""One OpenMP pool for PyTorch and Numba, and a place for Numba's compiled kernels.

Must be called before PyTorch is imported, and PyTorch be imported before Numba: with a pool each,
the two libraries fight for the same cores.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path


def prepare_threads(cache_path: Path, environment: MutableMapping[str, str] | None = None) -> None:
    """Set the libraries' variables, except those that whoever started Hearth has set."""
    variables = os.environ if environment is None else environment
    # Wait for each other for a few microseconds, then sleep. The default waits for milliseconds:
    # where another process wants the cores too, a step then takes up to ten times as long.
    variables.setdefault("GOMP_SPINCOUNT", "1000")
    variables.setdefault("NUMBA_THREADING_LAYER", "omp")
    variables.setdefault("NUMBA_CACHE_DIR", str(cache_path / "kernels"))
