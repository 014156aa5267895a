"""Many open pages without browsers, in one process of their own: the page's calls and events.

Reads one JSON object (ClientPlan) from standard input, writes one (ClientResult) to standard
output. Started by bench.page.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

_LIST_EVERY_S = 0.5
_POLL_S = 0.05
_MAX_EVENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ClientPlan:
    """Who asks what. `num_stops` of them press Stop, `num_second_tabs` open a second tab."""

    url: str
    prompts: list[str]  # one for each page, each of another person
    max_tokens: int
    num_stops: int = 0
    num_second_tabs: int = 0
    timeout_s: float = 900.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer as its page saw it."""

    state: str
    num_output_tokens: int
    num_events: int
    num_chars: int
    longest_gap_s: float  # without any event, from the question to the end


@dataclass(frozen=True, kw_only=True)
class ClientResult:
    wall_s: float
    answers: list[Answer]
    stops_s: list[float] = field(default_factory=list)
    second_tabs_s: list[float] = field(default_factory=list)
    lists_s: list[float] = field(default_factory=list)

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> ClientResult:
        answers = [Answer(**answer) for answer in fields["answers"]]
        return cls(**{**fields, "answers": answers})


class Page:
    """One tab of one person."""

    def __init__(self, http: httpx.AsyncClient, cookie: str) -> None:
        self._http = http
        self._cookie = cookie
        self._events: ClientConnection | None = None
        self.conversation_id = ""
        self.is_writing = False

    @classmethod
    async def open(cls, http: httpx.AsyncClient) -> Page:
        """As a new person."""
        response = await http.get("/")
        http.cookies.clear()  # the next page is another person's
        page = cls(http, response.raise_for_status().headers["set-cookie"].partition(";")[0])
        await page.connect()
        return page

    async def connect(self) -> None:
        address = str(self._http.base_url).rstrip("/")
        self._events = await connect(
            address.replace("http", "ws", 1) + "/api/chat/events",
            origin=address,  # type: ignore[arg-type]
            additional_headers={"Cookie": self._cookie},
            max_size=_MAX_EVENT_BYTES,
        )

    async def close(self) -> None:
        if self._events is not None:
            await self._events.close()

    async def second_tab(self) -> Page:
        page = Page(self._http, self._cookie)
        page.conversation_id = self.conversation_id
        await page.connect()
        return page

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Raises httpx.HTTPStatusError: it was refused."""
        headers = {"Cookie": self._cookie}
        response = await self._http.request(method, f"/api/chat{path}", json=body, headers=headers)
        fields: dict[str, Any] = response.raise_for_status().json()
        return fields

    async def ask(self, text: str, question_id: str, max_tokens: int) -> None:
        body = {
            "conversation_id": None,
            "question_id": question_id,
            "text": text,
            "settings": {"temperature": 0.0, "max_tokens": max_tokens},
        }
        self.conversation_id = (await self.call("POST", "/ask", body))["conversation_id"]
        await self.watch()

    async def watch(self) -> None:
        assert self._events is not None
        frame = {"type": "watch", "conversation_id": self.conversation_id}
        await self._events.send(json.dumps(frame))

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What comes of the conversation that is shown."""
        assert self._events is not None
        async for frame in self._events:
            event = json.loads(frame)
            if event["type"] in ("conversation", "answer"):
                yield event

    async def read_answer(self) -> Answer:
        """Read to the end of the last answer."""
        num_events, num_chars, longest_gap_s = 0, 0, 0.0
        last_s = time.perf_counter()
        async for event in self.events():
            now_s = time.perf_counter()
            longest_gap_s, last_s = max(longest_gap_s, now_s - last_s), now_s
            num_events += 1
            if event["type"] == "answer":
                num_chars = len(event["text"]) + (0 if event["is_whole"] else num_chars)
                if num_chars:
                    self.is_writing = True
                continue
            messages = event["conversation"]["messages"]
            last = messages[-1] if messages else None
            if last is None or last["role"] != "assistant" or last["state"] == "writing":
                continue
            return Answer(
                state=last["state"],
                num_output_tokens=(last["facts"] or {}).get("num_output_tokens") or 0,
                num_events=num_events,
                num_chars=max(num_chars, len(last["text"] or "")),
                longest_gap_s=longest_gap_s,
            )
        raise ConnectionError("The event connection ended before the answer did.")


async def run(plan: ClientPlan) -> ClientResult:
    limits = httpx.Limits(max_connections=len(plan.prompts) + 8, max_keepalive_connections=64)
    async with httpx.AsyncClient(
        base_url=plan.url, limits=limits, timeout=plan.timeout_s, trust_env=False
    ) as http:
        pages = [await Page.open(http) for _ in plan.prompts]
        try:
            async with asyncio.timeout(plan.timeout_s):
                return await _stream_all(pages, plan)
        finally:
            await asyncio.gather(*(page.close() for page in pages))


async def _stream_all(pages: list[Page], plan: ClientPlan) -> ClientResult:
    run_id = time.time_ns()
    start_s = time.perf_counter()
    reading = [
        asyncio.create_task(_hold(page, prompt, f"bench-{run_id}-{number}", plan.max_tokens))
        for number, (page, prompt) in enumerate(zip(pages, plan.prompts, strict=True))
    ]
    buttons = asyncio.create_task(_press_buttons(pages, reading, plan))
    answers = list(await asyncio.gather(*reading))
    wall_s = time.perf_counter() - start_s
    stops_s, second_tabs_s, lists_s = await buttons
    return ClientResult(
        wall_s=wall_s,
        answers=answers,
        stops_s=stops_s,
        second_tabs_s=second_tabs_s,
        lists_s=lists_s,
    )


async def _hold(page: Page, prompt: str, question_id: str, max_tokens: int) -> Answer:
    await page.ask(prompt, question_id, max_tokens)
    return await page.read_answer()


async def _press_buttons(
    pages: list[Page], reading: list[asyncio.Task[Answer]], plan: ClientPlan
) -> tuple[list[float], list[float], list[float]]:
    """Seconds until a stopped answer is seen to have ended, a second tab shows the conversation,
    and the list is there; all while the others stream."""
    if not plan.num_stops and not plan.num_second_tabs:
        return [], [], []
    await _until_all_write(pages, reading)
    lists_s: list[float] = []
    listing = asyncio.create_task(_list_on(pages[-1], lists_s))
    second = pages[plan.num_stops : plan.num_stops + plan.num_second_tabs]
    second_tabs_s = [await _timed(page, _show_in_second_tab) for page in second]
    stops_s = []
    for page, answer in zip(pages[: plan.num_stops], reading, strict=False):
        if not answer.done():
            pressed_s = time.perf_counter()
            await page.call("POST", f"/conversations/{page.conversation_id}/stop")
            await answer
            stops_s.append(time.perf_counter() - pressed_s)
    await asyncio.wait(reading)
    listing.cancel()
    return stops_s, second_tabs_s, lists_s


async def _until_all_write(pages: list[Page], reading: list[asyncio.Task[Answer]]) -> None:
    """The engine has begun everybody's answer, or some have ended already."""
    while not all(page.is_writing for page in pages):
        if any(answer.done() for answer in reading):
            return
        await asyncio.sleep(_POLL_S)


async def _timed(page: Page, work: Callable[[Page], Awaitable[None]]) -> float:
    start_s = time.perf_counter()
    await work(page)
    return time.perf_counter() - start_s


async def _show_in_second_tab(page: Page) -> None:
    tab = await page.second_tab()
    await tab.watch()
    async for event in tab.events():
        if event["type"] == "answer" or event["conversation"]["messages"]:
            break
    await tab.close()


async def _list_on(page: Page, took_s: list[float]) -> None:
    while True:
        took_s.append(await _timed(page, _list))
        await asyncio.sleep(_LIST_EVERY_S)


async def _list(page: Page) -> None:
    await page.call("GET", "/conversations")


def main() -> None:
    plan = ClientPlan(**json.load(sys.stdin))
    print(json.dumps(asdict(asyncio.run(run(plan)))))


if __name__ == "__main__":
    main()
