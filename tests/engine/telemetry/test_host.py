"""Processor and memory of the real machine."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from engine.telemetry.host import HostReader


def test_the_first_share_of_the_processor_is_unknown_and_not_zero() -> None:
    reader = HostReader()
    first = reader.read(time.time())
    assert (first.cpu_pct, first.process_cpu_pct) == (None, None)
    second = reader.read(time.time())
    assert second.cpu_pct is not None
    assert second.process_cpu_pct is not None
    assert 0.0 <= second.process_cpu_pct <= 100.0


def test_memory_of_the_machine_and_of_this_process() -> None:
    host = HostReader().read(time.time())
    assert host.memory_total_bytes == psutil.virtual_memory().total
    assert host.process_memory_bytes is not None
    assert host.memory_used_bytes is not None
    assert 0 < host.process_memory_bytes < host.memory_total_bytes
    assert 0 < host.memory_used_bytes < host.memory_total_bytes


def test_uptime_is_that_of_the_process() -> None:
    started_s = psutil.Process().create_time()
    assert HostReader().read(started_s + 90.0).process_uptime_s == pytest.approx(90.0)
    assert HostReader().read(started_s - 5.0).process_uptime_s == 0.0  # the clock was set back


def test_child_processes_belong_to_this_server() -> None:
    reader = HostReader()
    alone_bytes = reader.read(time.time()).process_memory_bytes
    program = "block = bytearray(200_000_000)\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        reader.read(time.time())  # the processor's share of a new process is since then
        time.sleep(0.3)
        host = reader.read(time.time())
        child.kill()
    assert alone_bytes is not None
    assert host.process_memory_bytes is not None
    assert host.process_memory_bytes > alone_bytes + 150_000_000
    assert host.process_cpu_pct is not None
    assert host.process_cpu_pct > 2.0
    after = reader.read(time.time())
    assert after.process_memory_bytes is not None
    assert after.process_memory_bytes < host.process_memory_bytes - 150_000_000


def test_what_the_system_refuses_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "virtual_memory", refuse)
    monkeypatch.setattr(psutil, "cpu_count", refuse)
    reader = HostReader()
    reader.read(0.0)
    host = reader.read(0.0)
    assert (host.num_cpus, host.memory_used_bytes, host.process_cpu_pct) == (None, None, None)
