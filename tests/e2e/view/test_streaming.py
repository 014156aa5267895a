"""An answer while it is written, in a real browser: whole characters, no jumps, on time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from playwright.sync_api import Browser

from tests.e2e.view.harness import Frame, ScriptedServer, View, answer, opened_view, question
from tests.e2e.view.steps import FAMILY, writing


def test_characters_split_over_deltas_come_out_whole(
    browser: Browser, server: ScriptedServer
) -> None:
    whole = f"Hé {FAMILY} 😀 \u0645\u0631 end"
    units = whole.encode("utf-16-le", "surrogatepass")
    halves = [
        units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2)
    ]
    with opened_view(browser, server) as view:
        writing(server)
        for half in halves:
            server.write(half)
        view.wait_until(lambda: view.text("a-live").inner_text() == whole)
        server.live_text = whole
        server.end()
        view.page.wait_for_selector(".is-answer:not(.is-live)")
        assert view.text("a-live").inner_text() == whole


def test_streamed_markdown_ends_as_it_is_drawn_after_a_reload(
    browser: Browser, server: ScriptedServer
) -> None:
    source = (
        "# Title\n\nSome *text* with [a link][1].\n\n"
        "1. one\n\n2. two\n   ```py\n   x\n\n   y\n   ```\n3. three\n\n> quote\nlazy\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nlet a;\n\n\nlet b;\n```\nafter\n\n"
        "    indented\n\n    code\n\n$$\na\n$$\n\n- x\n\n  para\n- y\n\n"
        "[1]: https://a.example\n"
    )
    with opened_view(browser, server) as view:
        writing(server)
        for start in range(0, len(source), 7):
            server.write(source[start : start + 7])
            view.page.wait_for_timeout(15)
        server.end()
        view.page.wait_for_selector(".is-answer:not(.is-live) .is-coloured")
        view.page.wait_for_selector(".math.is-drawn")
        settled = "view.drawing.jobs.length === 0"
        view.wait_for(settled)
        view.page.wait_for_timeout(200)
        streamed = view.text("a-live").inner_html()
        view.page.reload()
        view.page.wait_for_selector(".is-coloured")
        view.page.wait_for_selector(".math.is-drawn")
        view.wait_for(settled)
        view.page.wait_for_timeout(200)
        reloaded = view.text("a-live").inner_html()
    assert streamed == reloaded
    assert streamed.count("<ol") == 1
    assert 'href="https://a.example"' in streamed


def test_the_end_of_an_answer_moves_nothing(browser: Browser, server: ScriptedServer) -> None:
    with opened_view(browser, server) as view:
        writing(server)
        server.write("para one\n\n" * 30 + "the last words")
        view.wait_until(lambda: "the last words" in view.text("a-live").inner_text())
        view.page.evaluate("window.element = document.querySelector('[data-message-id=a-live]')")
        before = view.text("a-live").bounding_box()
        server.end()
        view.page.wait_for_selector(".is-answer:not(.is-live)")
        after = view.text("a-live").bounding_box()
        assert view.page.evaluate("window.element.isConnected")
        assert before is not None
        assert after is not None
        assert before["height"] == after["height"]
        assert abs(before["y"] - after["y"]) < 40
        assert view.distance_px < 2


def test_waiting_says_what_happens(browser: Browser, server: ScriptedServer) -> None:
    waiting = ".waiting span:last-child"
    with opened_view(browser, server) as view:
        writing(server)
        for frame, words in (
            ({"phase": "preparing"}, "Getting ready"),
            ({"phase": "summarising"}, "Summarising the earlier messages"),
            (
                {"phase": "queued", "queue_position": 2, "expected_wait_s": 12.3},
                "2 ahead of you · about 12 s",
            ),
            ({"phase": "queued", "queue_position": 0}, "Next in line"),
            (
                {"phase": "reading", "num_computed_tokens": 800, "num_prompt_tokens": 2310},
                "Reading the prompt · 800 of 2,310 tokens",
            ),
            ({"phase": "reading"}, "Reading the prompt"),
            (
                {"phase": "writing", "num_output_tokens": 42, "tokens_per_s": 12.34},
                "Writing · 42 tokens · 12.3 tokens/s",
            ),
            ({"phase": "stopping"}, "Stopping"),
        ):
            server.write(**frame)  # type: ignore[arg-type]
            view.wait_until(lambda words=words: view.page.inner_text(waiting) == words)
        server.set_engine(state="restarting", message="The engine ended.")
        view.wait_until(lambda: view.page.inner_text(waiting) == "The model is being restarted")
        server.set_engine(state="ready", message="")
        view.wait_until(lambda: view.page.inner_text(waiting) == "Stopping")


LONG_TASKS = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.tasks.push(entry.duration);
  }).observe({ type: "longtask", buffered: false });
}"""
# How long until what has come is drawn, looked at in each frame.
LAGS = """() => {
  const came = new Map();
  state.addEventListener("live", () => {
    const last = state.live?.text.match(/mark\\d+/g)?.at(-1);
    const key = `${state.live?.messageId} ${last}`;
    if (last && !came.has(key)) came.set(key, performance.now());
  });
  const look = () => {
    const text = document.querySelector(".is-live > .text")?.textContent ?? "";
    for (const [key, ms] of came) {
      if (!ms || !text.includes(key.split(" ")[1])) continue;
      window.lags.push(performance.now() - ms);
      came.set(key, 0);
    }
    requestAnimationFrame(look);
  };
  look();
}"""
CODE = (
    "Some words before.\n\n```python\n"
    + "value = compute(1, 'two')  # three\n" * 12
    + "```\n\nAnd after."
)


def measured(attempt: Callable[[], None], num_attempts: int = 3) -> None:
    """A pace that is reached once can be reached: others use this machine's processors as well."""
    for _ in range(num_attempts - 1):
        with contextlib.suppress(AssertionError):
            attempt()
            return
    attempt()


def test_br_66_a_fast_stream_leaves_no_backlog_and_stop_shows_at_once(browser: Browser) -> None:
    """20,000 tokens as fast as they go; Stop at 3 s."""

    def attempt() -> None:
        server = ScriptedServer()
        with opened_view(browser, server) as view:
            writing(server)
            view.page.evaluate(LONG_TASKS)
            num_written = write_for_3_s(view, server)
            server.on_call = lambda method, path, body: server.end("stopped")
            server.write("stopped-here")
            pressed = view.page.evaluate("(() => { state.stop(); return performance.now(); })()")
            view.page.wait_for_selector(".state.is-stopped", timeout=5000)
            took_ms = view.page.evaluate("performance.now()") - pressed
            text = view.text("a-live").inner_text()
            view.page.wait_for_timeout(300)
            tasks = view.page.evaluate("window.tasks")
        assert num_written >= 20_000
        assert took_ms < 1000
        assert text.endswith("stopped-here")
        assert text.count("quick") == num_written // 9
        assert max(tasks, default=0) < 200

    measured(attempt)


def write_for_3_s(view: View, server: ScriptedServer) -> int:
    """20,000 words, or more where they do not take the time; returns their number."""
    start = time.monotonic()
    num_written = 0
    while time.monotonic() - start < 3 or num_written < 20_000:
        if num_written < 20_000:
            server.write("the quick brown fox jumps over a lazy dog\n\n" * 12)
            num_written += 12 * 9
        view.page.wait_for_timeout(5)
    return num_written


def test_a_long_history_stays_smooth_while_an_answer_streams(
    browser: Browser, server: ScriptedServer
) -> None:
    """300 messages with code, 50 chunks/s: within 0.3 s of the server, no task over 200 ms."""
    history: list[Frame] = []
    for number in range(150):
        history += [question(f"q{number}", f"Question {number}"), answer(f"a{number}", CODE)]
    server.show(*history)
    with opened_view(browser, server) as view:
        view.page.wait_for_selector('[data-message-id="a149"] .code-block')
        while view.page.locator(".earlier:visible").count():
            view.page.evaluate("state.loadEarlier()")
            view.page.wait_for_timeout(100)
        view.wait_for("view.views.size === 300 && view.drawing.jobs.length === 0", 60)
        view.page.evaluate(LONG_TASKS)
        view.page.evaluate(LAGS)
        attempts = iter(range(9))

        def attempt() -> None:
            server.begin(f"live-{next(attempts)}")
            view.page.evaluate("view.scroll.toEnd(), (window.tasks = []), (window.lags = [])")
            for number in range(250):
                newline = "\n\n" if number % 10 == 9 else " "
                server.write(f"mark{number} and some words here{newline}")
                view.page.wait_for_timeout(20)
            view.page.wait_for_timeout(600)
            lags, tasks = view.page.evaluate("[window.lags, window.tasks]")
            distance_px = view.distance_px
            server.end()
            assert distance_px < 2
            assert len(lags) == 250
            assert max(lags) < 300
            assert max(tasks, default=0) < 200

        measured(attempt)


def test_a_hidden_page_draws_nothing_and_catches_up(
    browser: Browser, server: ScriptedServer
) -> None:
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with opened_view(browser, server) as view:
        writing(server)
        server.write("seen ")
        view.wait_until(lambda: "seen" in view.text("a-live").inner_text())
        view.page.evaluate(hide, True)
        server.write("unseen")
        view.wait_for("state.live.text.includes('unseen')")
        view.page.wait_for_timeout(400)
        assert view.text("a-live").inner_text() == "seen"
        view.page.evaluate(hide, False)
        view.wait_until(lambda: view.text("a-live").inner_text() == "seen unseen")
