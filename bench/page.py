"""What the chat page costs the engine: many answers at once over the page's own calls and events,
against as many clients that read from the engine directly.

python -m bench.page --streams 100 --tokens 48 --rounds 2

Both use one engine process with the same settings and take turns; each round has fresh questions,
the same for both. The page's readers run in a process of their own, as browsers do. Options that
are not known here go to the engine: --model, --kv-cache-memory-bytes, ...
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI

from bench.page_client import ClientPlan, ClientResult
from bench.report import median, percentile, print_json, print_table
from bench.workload import ChatWorkload
from engine import (
    ChatMessage,
    ChatRequest,
    ChatService,
    Engine,
    EngineConfig,
    EngineState,
    Monitor,
    SamplingParams,
    create_engine,
    parse_settings,
)
from ui.chat.config import ChatConfig
from ui.server_config import ServerConfig
from ui.web import create_web_app
from ui.web_server import WebServer, address_of, open_socket

_ROOT = Path(__file__).resolve().parent.parent
_PROMPT_WORDS = 12
_WARM_UP = -1  # number of the round that is not counted


class BenchPlan(NamedTuple):
    streams: int
    tokens: int  # most of each answer
    rounds: int
    num_presses: int  # of Stop, and second tabs, in the round of buttons


class DirectResult(NamedTuple):
    num_output_tokens: int
    wall_s: float
    cpu_s: float  # of this process: reading; with the page, serving

    @property
    def tokens_per_s(self) -> float:
        return self.num_output_tokens / self.wall_s


class PageResult(NamedTuple):
    seen: ClientResult
    cpu_s: float

    @property
    def num_output_tokens(self) -> int:
        return sum(answer.num_output_tokens for answer in self.seen.answers)

    @property
    def tokens_per_s(self) -> float:
        return self.num_output_tokens / self.seen.wall_s


class PageBench:
    """Rounds of both kinds on one engine behind one web server."""

    def __init__(self, engine: Engine, url: str, plan: BenchPlan) -> None:
        self._chat = ChatService(engine)
        self._url = url
        self._plan = plan
        self.direct: list[DirectResult] = []
        self.page: list[PageResult] = []
        self.buttons: ClientResult | None = None

    def run(self) -> None:
        """One pair of rounds after the other, the order changing, then the round of buttons."""
        asyncio.run(self._direct_round(_WARM_UP))  # both load their tokenizers
        self._page_round(_WARM_UP)
        for number in range(self._plan.rounds):
            if number % 2:
                self.page.append(self._page_round(number))
            self.direct.append(asyncio.run(self._direct_round(number)))
            if not number % 2:
                self.page.append(self._page_round(number))
        if self._plan.num_presses:
            last = self._page_round(self._plan.rounds, self._plan.num_presses)
            self.buttons = last.seen

    def prompts(self, number: int) -> list[str]:
        """One for each stream, other ones in each round; two to warm up."""
        num_streams = self._plan.streams if number != _WARM_UP else 2
        workload = ChatWorkload(
            users=num_streams, turns=1, message_words=_PROMPT_WORDS, seed=number
        )
        words = [next(workload.messages_of(user)) for user in range(num_streams)]
        return [f"{text[:-1]}: tell a very long story with these words." for text in words]

    async def _direct_round(self, number: int) -> DirectResult:
        prompts = self.prompts(number)
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        counts = await asyncio.gather(
            *(self._answer(prompt, number, user) for user, prompt in enumerate(prompts))
        )
        wall_s = time.perf_counter() - start_s
        return DirectResult(sum(counts), wall_s, time.process_time() - start_cpu_s)

    async def _answer(self, prompt: str, number: int, user: int) -> int:
        """Number of output tokens."""
        request = ChatRequest(
            messages=(ChatMessage("user", prompt),),
            sampling=SamplingParams(temperature=0.0, max_tokens=self._plan.tokens),
            owner=f"direct-{user}",
            user=f"direct-{user}",
            cache_salt=f"direct-{number}",  # the page must not find what was computed here
        )
        num_tokens = 0
        async for output in await self._chat.open(request):
            num_tokens = output.usage.num_output_tokens if output.usage else num_tokens
            if output.error:
                raise SystemExit(f"The engine failed on a request: {output.error}")
        return num_tokens

    def _page_round(self, number: int, num_presses: int = 0) -> PageResult:
        plan = ClientPlan(
            url=self._url,
            prompts=self.prompts(number),
            max_tokens=self._plan.tokens,
            num_stops=num_presses,
            num_second_tabs=num_presses,
        )
        start_cpu_s = time.process_time()
        done = subprocess.run(
            [sys.executable, "-m", "bench.page_client"],
            input=json.dumps(asdict(plan)),
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit("The page's clients failed; see above.")
        cpu_s = time.process_time() - start_cpu_s
        return PageResult(ClientResult.of_json(json.loads(done.stdout)), cpu_s)


def figures(bench: PageBench, plan: BenchPlan) -> dict[str, Any]:
    """The keys that other programs read. Rounds of both kinds were timed alike."""
    page = median([result.tokens_per_s for result in bench.page])
    direct = median([result.tokens_per_s for result in bench.direct])
    buttons = bench.buttons or ClientResult(wall_s=0.0, answers=[])
    num_answered = [
        sum(
            answer.state == "done" and answer.num_output_tokens > 0
            for answer in result.seen.answers
        )
        for result in bench.page
    ]
    gaps_s = [answer.longest_gap_s for result in bench.page for answer in result.seen.answers]
    return {
        "streams": plan.streams,
        "answered": min(num_answered),
        "throughput_share": round(page / direct, 4),
        "page_tokens_per_s": round(page, 2),
        "direct_tokens_per_s": round(direct, 2),
        "stop_p95_s": _p95(buttons.stops_s),
        "second_tab_p95_s": _p95(buttons.second_tabs_s),
        "list_p95_s": _p95(buttons.lists_s),
        "stops": len(buttons.stops_s),
        "longest_gap_s": round(max(gaps_s), 3),
        "web_max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "rounds": plan.rounds,
        "tokens": plan.tokens,
    }


def _p95(values_s: Sequence[float]) -> float:
    return round(percentile(values_s, 0.95), 3)


def print_rounds(bench: PageBench) -> None:
    rows: list[list[Any]] = []
    for number, (direct, page) in enumerate(zip(bench.direct, bench.page, strict=True), start=1):
        events = sum(answer.num_events for answer in page.seen.answers)
        rows += [_row(f"{number} direct", direct, direct.wall_s, "-")]
        rows += [_row(f"{number} page", page, page.seen.wall_s, events)]
    print_table(["round", "tokens", "seconds", "tokens/s", "CPU s", "events"], rows)


def _row(
    name: str, result: DirectResult | PageResult, wall_s: float, events: int | str
) -> list[Any]:
    speed, cpu_s = f"{result.tokens_per_s:.1f}", f"{result.cpu_s:.1f}"
    return [name, result.num_output_tokens, f"{wall_s:.1f}", speed, cpu_s, events]


@contextlib.contextmanager
def served_page(engine: Engine, data_dir: Path) -> Iterator[str]:
    """The whole web application in a thread of this process; it starts and stops the engine."""
    config = ServerConfig(port=0, data_dir=data_dir)
    with open_socket(config) as listener:
        url = address_of(listener)
        app = asyncio.run(_create_app(engine, config))
        server = WebServer(app, engine=engine, say=lambda line: None)
        thread = threading.Thread(target=server.serve_on, args=(listener,), name="web-server")
        thread.start()
        try:
            _wait_until_ready(engine, thread)
            yield url
        finally:
            server.should_exit = True
            thread.join()


async def _create_app(engine: Engine, config: ServerConfig) -> FastAPI:
    """Inside an event loop: Gradio opens some of its own, and leaks them, where none runs."""
    return create_web_app(
        engine=engine,
        monitor=Monitor(engine.stats),
        config=config,
        chat_config=ChatConfig(auto_titles="first-words"),  # no requests that nobody counts
    )


def _wait_until_ready(engine: Engine, server: threading.Thread) -> None:
    while engine.status().state is not EngineState.READY:
        if engine.status().state is EngineState.FAILED or not server.is_alive():
            raise SystemExit(engine.status().message)
        time.sleep(0.1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48, help="most tokens of an answer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--presses", type=int, default=5, help="of Stop, and second tabs")
    options, engine_options = parser.parse_known_args(arguments)
    plan = BenchPlan(options.streams, options.tokens, options.rounds, options.presses)
    limits = ["--max-num-seqs", str(plan.streams), "--max-queued-requests", str(4 * plan.streams)]
    (config,) = parse_settings([EngineConfig], [*limits, *engine_options], {}, "bench.page")
    with tempfile.TemporaryDirectory() as directory:
        engine = create_engine(config)
        with served_page(engine, Path(directory)) as url:
            bench = PageBench(engine, url, plan)
            bench.run()
    print_rounds(bench)
    print_json(figures(bench, plan))


if __name__ == "__main__":
    main()
