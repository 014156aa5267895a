"""A real Hearth server in its own process, one for a test session: each start costs seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import openai
import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
_START_LIMIT_S = 180.0
_STOP_LIMIT_S = 20.0


class RunningServer:
    """Where a server is, where it keeps its data, and how it does."""

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, log_path: Path, data_dir: Path
    ) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.data_dir = data_dir
        self._log_path = log_path

    def log(self) -> str:
        """What it printed so far, standard output and error together."""
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def async_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, trust_env=False)

    def metric(self, name: str) -> float:
        """One sample of /metrics, by its name without the prefix `hearth:`."""
        for line in httpx.get(f"{self.url}/metrics", trust_env=False).text.splitlines():
            if line.startswith((f"hearth:{name}{{", f"hearth:{name} ")):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"/metrics has no {name}")

    def wait_until(self, name: str, value: float, limit_s: float = 30) -> None:
        """Wait for a metric to have this value."""
        deadline = time.monotonic() + limit_s
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.05)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", trust_env=False).status_code == 200:
                    return
            time.sleep(0.2)
        raise AssertionError(f"The server was not ready in time:\n{self.log()}")

    def stop(self) -> int:
        """Ask it to end; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_LIMIT_S)

    def kill(self) -> None:
        """End it at once, as a power cut would, and its engine with it."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(_STOP_LIMIT_S)
        _end_all(children)

    def engine_pid(self) -> int:
        """The engine's process: the child with the most memory, beside Python's resource tracker.

        Raises LookupError: there is none.
        """
        children = psutil.Process(self.process.pid).children()
        engines = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        if not engines:
            raise LookupError("The server has no engine process now.")
        return max(engines, key=lambda child: child.memory_info().rss).pid


def _end_all(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, _STOP_LIMIT_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_server(
    options: Sequence[str] = (), port: int | None = None, data_dir: Path | None = None
) -> Iterator[RunningServer]:
    """Start `app.py` with these options; it may not be ready yet.

    With the `data_dir` of an earlier one it is that server, restarted; otherwise it starts empty.
    """
    port = port or free_port()
    with tempfile.TemporaryDirectory() as directory:
        data_dir = data_dir or Path(directory) / "data"
        log_path = Path(directory) / "server.log"
        command = [sys.executable, str(ROOT / "app.py"), "--port", str(port)]
        command += ["--data-dir", str(data_dir), *options]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        server = RunningServer(process, port, log_path, data_dir)
        try:
            yield server
        finally:
            if process.poll() is None:
                server.kill()


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """The server that all tests of a session share, with the bundled model and small bounds."""
    options = ["--max-model-len", "2048", "--kv-cache-memory-bytes", str(256 * 1024**2)]
    with running_server(options) as shared:
        shared.wait_until_ready()
        yield shared
