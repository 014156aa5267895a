from __future__ import annotations

import subprocess
import sys

from engine.build import create_engine
from engine.config import EngineConfig
from engine.engine import EngineState
from engine.process.process_engine import ProcessEngine


def test_a_new_engine_has_loaded_nothing_yet() -> None:
    engine = create_engine(EngineConfig())
    assert isinstance(engine, ProcessEngine)
    assert engine.status().state is EngineState.LOADING
    assert engine.stats() is None


def test_the_heavy_libraries_wait_for_the_engines_process() -> None:
    program = (
        "import sys; from engine import EngineConfig, create_engine; create_engine(EngineConfig());"
        "print({'torch', 'transformers', 'numba'} & sys.modules.keys())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"
