"""Imports point one way, and each library stays where it belongs. Read from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

MODULES_OF_LAYER: Mapping[str, tuple[str, ...]] = {
    "ground": (
        *("errors", "settings", "config", "sampling_params", "rope_regimes"),
        "kv_quality",
    ),
    "kv": ("kv",),
    "request": ("request", "batch"),
    "scheduling": (
        *("scheduler", "fair_queue", "roster", "block_room", "step_plan", "token_budget"),
        *("admission", "start_rate"),
    ),
    "attention": ("attention",),
    "model": ("model",),
    "text": ("text",),
    "stats": ("stats", "histogram", "metrics"),
    "telemetry": ("telemetry",),
    "planner": ("planner",),
    "core": ("core", "reply", "step_runner", "block_keeper"),
    "engine": (
        *("engine", "engine_loop", "loop_news", "front_desk", "in_process", "process", "serving"),
        *("stream", "build", "chat", "disk_cache"),
    ),
}
LAYER_OF_MODULE = {name: layer for layer, names in MODULES_OF_LAYER.items() for name in names}
LAYERS_BELOW: Mapping[str, set[str]] = {
    "ground": set(),
    "kv": {"ground"},
    "request": {"ground", "kv"},
    "scheduling": {"ground", "kv", "request"},
    "attention": {"ground", "kv"},
    "model": {"ground", "kv", "request", "attention"},
    "text": {"ground"},
    "stats": {"ground", "kv", "request"},
    "telemetry": {"ground", "stats"},
    "planner": {"ground", "model"},
    "core": {"ground", "kv", "request", "scheduling", "text", "stats"},
    "engine": set(MODULES_OF_LAYER) - {"engine"},
    "ui": {"facade"},
    "app": {"facade", "ui"},
}
HOMES_OF_LIBRARY: Mapping[str, tuple[str, ...]] = {
    "torch": (
        *("engine/model/", "engine/attention/"),
        *(
            f"engine/kv/{name}.py"
            for name in ("codecs", "hadamard", "key_basis", "schemes", "storage", "host_storage")
        ),
    ),
    "transformers": ("engine/model/", "engine/text/"),
    "huggingface_hub": ("engine/model/",),
    "numba": ("engine/model/", "engine/attention/"),
    "pynvml": ("engine/telemetry/nvml.py",),
    "psutil": ("engine/telemetry/", "engine/model/"),
    "gradio": ("ui/", "app.py"),
    "fastapi": ("ui/",),
    "starlette": ("ui/",),
    "uvicorn": ("ui/web_server.py",),
    "pydantic": ("ui/api/", "ui/chat/routes/"),
    "filelock": ("ui/chat/storage/",),
    "sqlalchemy": ("ui/chat/storage/",),
    "alembic": ("ui/chat/storage/",),
    "msgspec": ("engine/process/",),
    "prometheus_client": ("ui/metrics.py",),
}
NOWHERE = ("websockets", "tests", "pynvml_utils", "mock")


class Import(NamedTuple):
    path: str  # of the importing file, from the root
    module: str
    line: int


def source_files() -> list[Path]:
    found = [ROOT / "app.py"]
    for folder in ("engine", "ui"):
        found += sorted((ROOT / folder).rglob("*.py"))
    return found


def imports_of(text: str, path: str) -> Iterator[Import]:
    """Every import of a file, inside functions too; `from a import b` may name the module a.b."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(path, name.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module == "engine":
                yield from (
                    Import(path, _submodule("engine", name.name), node.lineno)
                    for name in node.names
                )
            else:
                yield Import(path, module, node.lineno)


def all_imports() -> list[Import]:
    found: list[Import] = []
    for file in source_files():
        found += imports_of(file.read_text(), file.relative_to(ROOT).as_posix())
    return found


def _submodule(package: str, name: str) -> str:
    is_module = (ROOT / package / name).is_dir() or (ROOT / package / f"{name}.py").exists()
    return f"{package}.{name}" if is_module else package


def layer_of_file(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    if parts[0] != "engine":
        return parts[0]
    return "facade" if parts[1] == "__init__" else LAYER_OF_MODULE[parts[1]]


def layer_of_module(module: str) -> str | None:
    """None: not one of ours."""
    parts = module.split(".")
    if parts[0] == "engine":
        return "facade" if len(parts) == 1 else LAYER_OF_MODULE[parts[1]]
    return parts[0] if parts[0] in LAYERS_BELOW else None


def crossing(item: Import) -> bool:
    """Whether an import points upwards or sideways."""
    here, there = layer_of_file(item.path), layer_of_module(item.module)
    if there is None or there == here or here == "facade":
        return False
    return there not in LAYERS_BELOW[here]


def strays(item: Import) -> bool:
    """Whether an import takes a library out of its home, or something that has none."""
    library = item.module.split(".")[0]
    if library in NOWHERE or item.module.startswith("."):
        return True
    homes = HOMES_OF_LIBRARY.get(library)
    return homes is not None and not item.path.startswith(homes)


def test_every_engine_module_has_a_layer() -> None:
    modules = {path.stem for path in (ROOT / "engine").iterdir() if path.stem[0] not in "_."}
    assert modules - set(LAYER_OF_MODULE) == set()


def test_imports_point_one_way() -> None:
    assert [item for item in all_imports() if crossing(item)] == []


def test_libraries_stay_at_home() -> None:
    assert [item for item in all_imports() if strays(item)] == []


@pytest.mark.parametrize(
    ("path", "line", "is_crossing"),
    [
        ("ui/web.py", "from engine import EngineConfig", False),
        ("ui/web.py", "from engine.core import EngineCore", True),
        ("ui/web.py", "from engine import core", True),
        ("ui/web.py", "import engine.scheduler", True),
        ("engine/kv/manager.py", "from engine.request import Request", True),
        ("engine/kv/manager.py", "from engine.errors import HearthError", False),
        ("engine/scheduler.py", "from engine.model.runner import ModelRunner", True),
        ("engine/scheduler.py", "def f():\n    from engine.core import EngineCore", True),
        ("engine/model/runner.py", "from engine.attention.interface import Attention", False),
        ("engine/telemetry/nvml.py", "from ui.health import Health", True),
        ("app.py", "from ui.web import create_web_app", False),
        ("app.py", "from engine.build import create_engine", True),
    ],
)
def test_the_check_sees_a_wrong_direction(path: str, line: str, is_crossing: bool) -> None:
    assert [crossing(item) for item in imports_of(line, path)] == [is_crossing]


@pytest.mark.parametrize(
    ("path", "line", "is_stray"),
    [
        ("engine/scheduler.py", "import torch", True),
        ("engine/kv/manager.py", "from torch.nn import functional", True),
        ("engine/kv/storage.py", "import torch", False),
        ("engine/chat.py", "from transformers import AutoTokenizer", True),
        ("engine/telemetry/host.py", "import pynvml", True),
        ("engine/core.py", "import gradio as gr", True),
        ("ui/layout.py", "import gradio as gr", False),
        ("ui/health.py", "import prometheus_client", True),
        ("engine/process/messages.py", "import msgspec", False),
        ("engine/engine_loop.py", "import msgspec", True),
        ("ui/chat/storage/database.py", "import sqlalchemy", False),
        ("ui/chat/answers.py", "from sqlalchemy import select", True),
        ("ui/chat/routes/ask.py", "from pydantic import BaseModel", False),
        ("ui/chat/routes/events.py", "import websockets", True),
        ("engine/core.py", "from .errors import HearthError", True),
        ("engine/core.py", "from tests.fakes import FakeRunner", True),
    ],
)
def test_the_check_sees_a_stray_library(path: str, line: str, is_stray: bool) -> None:
    assert [strays(item) for item in imports_of(line, path)] == [is_stray]
