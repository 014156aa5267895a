"""A model hub on a port of this machine: as much of its API as a download needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from huggingface_hub import constants

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubRepository:
    files: Mapping[str, bytes]
    is_gated: bool = False
    branches: tuple[str, ...] = ("main",)
    status: int = 200  # of every answer


@dataclass
class FakeHub:
    """Holds repositories by id; `fetched` are the files that were really sent."""

    url: str
    repositories: dict[str, HubRepository] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a GET; a HEAD leaves out the body."""
        api, _, rest = path.partition("/api/models/")
        owner, name, kind, revision, *file = (rest if not api else path.lstrip("/")).split("/")
        repository = self.repositories.get(f"{owner}/{name}")
        if repository is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if repository.status != 200:
            return repository.status, {}, b"{}"
        if revision not in (*repository.branches, COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if kind == "revision":
            return _json({"id": f"{owner}/{name}", "sha": COMMIT, "siblings": []})
        if kind == "tree":
            return _json([_entry(path, content) for path, content in repository.files.items()])
        if repository.is_gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
        content = repository.files["/".join(file)]
        return 200, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": COMMIT}, content


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serves until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self._send_head()
            self.wfile.write(body)
            if "/resolve/" in self.path:
                hub.fetched.append(self.path.rpartition("/")[2])

        def do_HEAD(self) -> None:
            self._send_head()

        def _send_head(self) -> bytes:
            status, headers, body = hub.answer(self.path.partition("?")[0])
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            return body

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub = FakeHub(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def use_hub(url: str, cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_ENDPOINT, HF_HUB_CACHE and HF_HUB_OFFLINE=0 would do at the start of a process."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def _json(content: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _entry(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
