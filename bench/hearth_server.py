"""A Hearth server of the benchmark's own, on a free port, stopped with its block."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

_APP = Path(__file__).resolve().parent.parent / "app.py"
_START_LIMIT_S = 300.0


class HearthServer:
    """A running server process. `paused` keeps it off the cores while something else is timed."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.url = url
        self._process = process

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"The server ended with {self._process.returncode}; see above.")
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", trust_env=False).status_code == 200:
                    return
            time.sleep(0.25)
        raise SystemExit(f"The server was not ready after {_START_LIMIT_S:.0f} s.")


@contextlib.contextmanager
def hearth_server(options: Sequence[str] = ()) -> Iterator[HearthServer]:
    """Start `app.py` with these options and wait until the model answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(_APP), "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        server = HearthServer(process, f"http://127.0.0.1:{port}")
        server.wait_until_ready()
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)
