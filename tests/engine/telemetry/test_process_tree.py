from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from engine.telemetry.process_tree import ProcessTree


def test_children_and_grandchildren_belong_to_it_while_they_live() -> None:
    tree = ProcessTree()
    inner = "import time; print(flush=True); time.sleep(60)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (grandchild,) = psutil.Process(child.pid).children()
        assert {os.getpid(), child.pid, grandchild.pid} <= tree.process_ids()
        grandchild.kill()
    assert tree.process_ids().isdisjoint({child.pid, grandchild.pid})


def test_what_the_system_refuses_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise psutil.AccessDenied

    for name in ("children", "cpu_percent", "memory_info", "create_time"):
        monkeypatch.setattr(psutil.Process, name, refuse)
    tree = ProcessTree()
    assert tree.process_ids() == {os.getpid()}
    assert (tree.cpu_pct(), tree.memory_bytes(), tree.started_s()) == (None, None, None)
