"""The dashboard in a real browser: on the real server, and on an engine that a test controls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, Page

from engine import EngineState, Monitor
from engine.telemetry.nvml import NvmlReader
from tests.factories import make_engine_stats, make_model_info
from tests.fakes import FakeNvml, IdleEngine
from tests.server import RunningServer
from tests.web_factories import served
from ui.dashboard_stream import dashboard_router
from ui.middleware import SecurityHeaders
from ui.panels.dashboard import build_dashboard_panel
from ui.theme import page_options

HOSTILE = "<img src=x onerror=window.__ran=1> ${window.__ran=2} {{value}} <b>bold</b>"


class DashboardPage:
    """The page with its dashboard tab open, and all that went wrong on it."""

    def __init__(self, page: Page, url: str, theme: str = "light") -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self.streams: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._on_console)
        page.on("request", self._on_request)
        page.on("requestfailed", lambda request: self._on_end(request.url))
        page.goto(f"{url}/?__theme={theme}")

    def open(self) -> None:
        self.page.click('button[role=tab]:has-text("Dashboard")')
        self.wait_for_text("[data-role=freshness]", "Live")

    def leave(self) -> None:
        self.page.click('button[role=tab]:has-text("Chat")')

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text().strip()

    def value(self, name: str) -> str:
        return self.text(f'[data-value="{name}"]')

    def wait_for_text(self, selector: str, text: str) -> None:
        self.page.locator(selector).first.filter(has_text=text).wait_for()

    def wait_until(self, condition: Callable[[], bool], limit_s: float = 10) -> None:
        """The page's events are only delivered while Playwright itself waits."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline
            self.page.wait_for_timeout(20)

    def overflow_px(self) -> int:
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.errors.append(f"foreign request: {request.url}")
        if "/api/dashboard/stream" in request.url:
            self.streams.append("opened")

    def _on_end(self, url: str) -> None:
        if "/api/dashboard/stream" in url:
            self.streams.append("closed")


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    """visit(url, ...) opens a page; all are closed at the end."""
    with contextlib.ExitStack() as pages:

        def open_page(url: str, theme: str = "light", size: str = "1280x900") -> DashboardPage:
            width, height = map(int, size.split("x"))
            page = browser.new_page(viewport={"width": width, "height": height})
            pages.callback(page.close)
            return DashboardPage(page, url, theme)

        yield open_page


@contextlib.contextmanager
def served_dashboard(engine: IdleEngine, nvml: FakeNvml | None = None) -> Iterator[str]:
    reader = NvmlReader(lambda: nvml, {}, lambda: frozenset({1})) if nvml else None
    monitor = Monitor(engine.stats, nvml=reader, interval_s=0.2)
    app = FastAPI()
    app.include_router(dashboard_router(engine, monitor))
    app.add_middleware(SecurityHeaders)
    mount_tabs(app)
    monitor.start()
    with served(app) as url:
        try:
            yield url
        finally:
            monitor.stop()


def mount_tabs(app: FastAPI) -> None:
    with gr.Blocks() as blocks:
        with gr.Tab("Chat"):
            gr.Markdown("Chat")
        with gr.Tab("Dashboard"):
            build_dashboard_panel()
    gr.mount_gradio_app(app, blocks, path="/", **(page_options() | {"head": None}))  # no chat


def test_real_figures_move_after_a_chat(server: RunningServer, visit: Any) -> None:
    dashboard = visit(server.url)
    dashboard.open()
    assert dashboard.text("[data-role=state]") == "Ready"
    assert dashboard.text("[data-role=model]").startswith("bundled · 135 M parameters · cpu")
    before = int(dashboard.value("num_output_tokens_total").replace(",", ""))
    answer = server.client().chat.completions.create(
        model="bundled",
        messages=[{"role": "user", "content": "Count to five."}],
        max_tokens=8,
        extra_body={"ignore_eos": True},
    )
    assert answer.usage is not None
    expected = before + answer.usage.completion_tokens
    dashboard.wait_for_text('[data-value="num_output_tokens_total"]', f"{expected:,}")
    for name in ("ttft_p50_s", "inter_token_p50_s", "total_hit_pct", "num_blocks_cached"):
        assert dashboard.value(name) != "–"
    assert dashboard.errors == []


def test_without_a_gpu_the_machine_is_shown_with_one_line_why(
    server: RunningServer, visit: Any
) -> None:
    dashboard = visit(server.url)
    dashboard.open()
    assert dashboard.text("[data-role=no-gpu]").startswith("No GPU figures: ")
    processor = dashboard.text('figure[data-chart="cpu"] .legend')
    assert processor.startswith("this server ")
    assert " %" in processor
    assert "GiB" in dashboard.text('figure[data-chart="memory"] .legend')
    assert dashboard.page.locator(".gpu").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_scrolls_only_downwards(server: RunningServer, visit: Any, theme: str) -> None:
    dashboard = visit(server.url, theme, "390x844")
    dashboard.open()
    assert dashboard.overflow_px() <= 0
    color = "getComputedStyle(document.querySelector('.hearth-dashboard canvas'))"
    seen = dashboard.page.evaluate(f"{color}.getPropertyValue('--series-a').trim()")
    assert seen == {"light": "#2563c9", "dark": "#6ea8fe"}[theme]


def test_the_stream_is_open_only_while_the_tab_is_seen(server: RunningServer, visit: Any) -> None:
    dashboard = visit(server.url)
    dashboard.page.get_by_role("tab", name="Dashboard").wait_for()
    assert dashboard.streams == []
    dashboard.open()
    dashboard.leave()
    dashboard.wait_until(lambda: len(dashboard.streams) == 2)
    assert dashboard.streams == ["opened", "closed"]
    dashboard.open()
    dashboard.wait_until(lambda: len(dashboard.streams) == 3)
    assert dashboard.streams == ["opened", "closed", "opened"]


def test_pointing_at_a_chart_shows_time_and_value(server: RunningServer, visit: Any) -> None:
    dashboard = visit(server.url)
    dashboard.open()
    canvas = dashboard.page.locator('figure[data-chart="memory"] canvas')
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] - 1, "y": 50})
    tip = dashboard.text('figure[data-chart="memory"] .tip').split("\n")
    assert tip[0].count(":") == 2
    assert tip[1].startswith("this server ")
    dashboard.page.mouse.move(0, 0)
    dashboard.page.locator('figure[data-chart="memory"] .tip').wait_for(state="hidden")


def test_the_charts_are_there_as_a_table(server: RunningServer, visit: Any) -> None:
    dashboard = visit(server.url)
    dashboard.open()
    dashboard.page.click(".hearth-dashboard summary")
    row = dashboard.page.locator("tr", has_text="Memory: all")
    row.filter(has_text="GiB").wait_for()
    assert row.locator("td").count() == 3


def test_while_the_model_loads_the_page_says_so_and_shows_dashes(visit: Any) -> None:
    engine = IdleEngine(state=EngineState.LOADING)
    with served_dashboard(engine) as url:
        dashboard = visit(url)
        dashboard.open()
        assert dashboard.text("[data-role=state]") == "Loading the model"
        assert dashboard.text("[data-role=banner]") == "The model is loading."
        for name in ("num_running", "output_tokens_per_s", "num_blocks_free", "ttft_p50_s"):
            assert dashboard.value(name) == "–"
        engine.info, engine.reading = make_model_info(), make_engine_stats(num_running=2)
        engine.state = EngineState.READY
        dashboard.wait_for_text("[data-role=state]", "Ready")
        dashboard.wait_for_text('[data-value="num_running"]', "2")
        assert not dashboard.page.locator("[data-role=banner]").is_visible()


def test_gpus_are_shown_and_a_lost_one_is_told(visit: Any) -> None:
    nvml = FakeNvml(names=["NVIDIA H200", "NVIDIA L4"])
    nvml.throttle_bits = 0x4
    nvml.processes = {0: [(1, 8 << 30)]}
    nvml.faults["*", 1] = 15
    with served_dashboard(IdleEngine(info=make_model_info()), nvml) as url:
        dashboard = visit(url)
        dashboard.open()
        cards = dashboard.page.locator(".gpu")
        cards.nth(1).wait_for()
        first, second = cards.nth(0).inner_text(), cards.nth(1).inner_text()
    assert "GPU 0 · NVIDIA H200 this server" in first.replace("\n", " ")
    for figure in ("70 %", "8.0 GiB", "61 °C", "288 W", "450 W", "2,520 MHz", "power limit"):
        assert figure in first
    assert "No figures: the GPU is lost" in second
    assert "this server" not in second


def test_br_63_names_and_messages_are_only_ever_text(visit: Any) -> None:
    engine = IdleEngine(info=make_model_info(name=HOSTILE, device=HOSTILE))
    with served_dashboard(engine, FakeNvml(names=[HOSTILE])) as url:
        dashboard = visit(url)
        dashboard.open()
        dashboard.page.locator(".gpu").wait_for()
        assert HOSTILE in dashboard.text("[data-role=model]")
        assert HOSTILE in dashboard.text('[data-gpu="title"]')
        assert dashboard.page.locator(".hearth-dashboard img").count() == 0
        assert dashboard.page.evaluate("window.__ran") is None


def test_a_server_that_goes_away_is_told_at_once(visit: Any) -> None:
    with served_dashboard(IdleEngine(info=make_model_info())) as url:
        dashboard = visit(url)
        dashboard.open()
    dashboard.wait_for_text("[data-role=freshness]", "Connection lost, trying again")


def test_a_driver_that_hangs_shows_as_stale_and_the_page_goes_on(visit: Any) -> None:
    class HangingNvml(FakeNvml):
        def _call(self, function: str, *arguments: Any) -> Any:
            released.wait()
            return super()._call(function, *arguments)

    released = threading.Event()
    released.set()
    with served_dashboard(IdleEngine(info=make_model_info()), HangingNvml()) as url:
        dashboard = visit(url)
        dashboard.open()
        released.clear()
        dashboard.wait_for_text("[data-role=freshness]", "Stale for 4 s")
        released.set()
        dashboard.wait_for_text("[data-role=freshness]", "Live")
