"""The whole web application without a model: its routes, bounds, headers, start and end."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from engine import ConfigError, EngineState, Monitor
from tests.engine_factories import wait_until
from tests.factories import make_engine_stats, make_model_info
from tests.fakes import IdleEngine
from ui.chat.storage.database import open_database
from ui.server_config import ServerConfig
from ui.web import create_web_app

KEY = "sesame"


def make_app(engine: IdleEngine, config: ServerConfig, monitor: Monitor | None = None) -> FastAPI:
    """Built inside an event loop: Gradio opens some of its own, and leaks them, where none runs."""

    async def create() -> FastAPI:
        monitor_ = monitor or Monitor(engine.stats)
        return create_web_app(engine=engine, monitor=monitor_, config=config)

    return asyncio.run(create())


@pytest.fixture(scope="module")
def engine() -> IdleEngine:
    return IdleEngine(stats=make_engine_stats(), info=make_model_info())


@pytest.fixture(scope="module")
def client(engine: IdleEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    config = ServerConfig(
        api_key=KEY,
        max_request_bytes=2000,
        max_import_bytes=4000,
        data_dir=tmp_path_factory.mktemp("data"),
    )
    with TestClient(make_app(engine, config), raise_server_exceptions=False) as inside:
        inside.get("/")
        yield inside


def test_the_page_is_at_the_root_beside_the_routes(client: TestClient) -> None:
    page = client.get("/")
    assert (page.status_code, "Hearth" in page.text) == (200, True)
    assert client.get("/health").json()["status"] == "ok"


def test_the_key_guards_v1_and_metrics_but_neither_page_nor_health(client: TestClient) -> None:
    for path in ("/v1/models", "/metrics"):
        assert client.get(path).status_code == 401
        headers = {"Authorization": f"Bearer {KEY}"}
        assert client.get(path, headers=headers).status_code == 200
    for path in ("/", "/health", "/config"):
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/health", "/v1/models", "/v1/nothing", "/config"),
        *("/api/chat/conversations", "/api/chat/nothing", "/assets/chat/api.js"),
    ],
)
def test_every_answer_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert "img-src 'self' data: blob:;" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/gradio_api/queue/join", "/api/chat/ask"),
    ],
)
def test_large_bodies_are_refused_everywhere(client: TestClient, path: str) -> None:
    pieces = (b" " for _ in range(2001))
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    assert client.post(path, content=b" " * 2001, headers=headers).status_code == 413
    assert client.post(path, content=pieces, headers=headers).status_code == 413


def test_what_gradio_offers_beyond_the_page_is_off(client: TestClient) -> None:
    assert client.get("/monitoring/summary").status_code == 403
    assert client.get("/gradio_api/runs").status_code == 404
    for path in ("/docs", "/openapi.json", "/redoc"):
        assert client.get(path).status_code == 404


def test_nobody_can_put_files_where_gradio_serves_them_to_all(client: TestClient) -> None:
    files = {"files": ("note.txt", b"anybody could read this", "text/plain")}
    for path in ("/gradio_api/upload", "/gradio_api/upload?upload_id=1"):
        assert client.post(path, files=files).status_code == 403
    assert client.post("/upload", files=files).status_code in (404, 405)


def test_a_file_of_conversations_may_be_larger_than_other_bodies(client: TestClient) -> None:
    headers = {"Content-Type": "application/octet-stream"}
    path = "/api/chat/import"
    assert client.post(path, content=b" " * 4001, headers=headers).status_code == 413
    assert client.post(path, content=b" " * 3000, headers=headers).status_code != 413


def test_the_pages_modules_are_beside_those_of_gradio(client: TestClient) -> None:
    module = client.get("/assets/chat/api.js")
    assert module.status_code == 200
    assert module.headers["content-type"].partition(";")[0].endswith("/javascript")
    assert module.headers["cache-control"] == "no-cache"
    unchanged = client.get("/assets/chat/api.js", headers={"If-None-Match": module.headers["etag"]})
    assert unchanged.status_code == 304
    own = re.search(r"assets/(index-[^\"']+\.js)", client.get("/").text)
    assert own is not None
    assert client.get(f"/assets/{own.group(1)}").status_code == 200


@pytest.mark.parametrize(
    "path", ["/assets/chat/../../app.py", "/assets/chat/%2e%2e/%2e%2e/app.py", "/assets/chat/"]
)
def test_nothing_beside_the_modules_is_served(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "import" not in response.text


def test_a_data_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        make_app(IdleEngine(), ServerConfig(data_dir=tmp_path / "file"))


def test_the_engine_runs_as_long_as_the_application(tmp_path: Path) -> None:
    engine = IdleEngine(EngineState.LOADING)
    monitor = Monitor(engine.stats)
    app = make_app(engine, ServerConfig(data_dir=tmp_path), monitor)
    assert not engine.is_started
    with TestClient(app):
        assert engine.is_started
        wait_until(lambda: monitor.latest() is not None)
    assert not engine.is_started
    assert not monitor.is_running
    open_database(tmp_path).close()  # nobody holds it any more


class StubbornEngine(IdleEngine):
    """Its end waits for something, as a model's loading does."""

    def __init__(self) -> None:
        super().__init__(EngineState.LOADING)
        self.may_end = threading.Event()

    def stop(self) -> None:
        self.may_end.wait(30)
        super().stop()


def test_an_engine_that_does_not_end_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ui.web._STOP_LIMIT_S", 0.1)
    engine = StubbornEngine()
    with TestClient(make_app(engine, ServerConfig(data_dir=tmp_path))):
        pass
    assert engine.is_started
    engine.may_end.set()
    wait_until(lambda: not engine.is_started)
