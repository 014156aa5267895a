"""A streaming client of any OpenAI-compatible server, with a stopwatch."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import httpx


class Reply(NamedTuple):
    """One answered request. Times in seconds; `cached_tokens` None: the server does not say."""

    text: str
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    ttft_s: float
    total_s: float
    gaps_s: tuple[float, ...]


async def stream_chat(
    client: httpx.AsyncClient, body: Mapping[str, Any], messages: Sequence[Mapping[str, str]]
) -> Reply:
    """Ask once and read the stream to its end.

    A kept-alive connection that the server closed meanwhile is tried once more.

    Raises:
        httpx.HTTPError: no answer, or a status other than 200.
    """
    request = {**body, "messages": list(messages), "stream": True}
    request["stream_options"] = {"include_usage": True}
    try:
        return await _stream_once(client, request)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return await _stream_once(client, request)


async def _stream_once(client: httpx.AsyncClient, request: Mapping[str, Any]) -> Reply:
    start = time.perf_counter()
    pieces: list[str] = []
    arrivals: list[float] = []
    usage: Mapping[str, Any] = {}
    async with client.stream("POST", "/v1/chat/completions", json=request) as response:
        if response.status_code != 200:
            await response.aread()
            response.raise_for_status()
        async for event in _events(response):
            if "error" in event:
                raise httpx.RemoteProtocolError(str(event["error"]))
            usage = event.get("usage") or usage
            text = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            if text:
                pieces.append(text)
                arrivals.append(time.perf_counter() - start)
    total = time.perf_counter() - start
    details = usage.get("prompt_tokens_details") or {}
    return Reply(
        text="".join(pieces),
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=details.get("cached_tokens"),
        output_tokens=usage.get("completion_tokens", 0),
        ttft_s=arrivals[0] if arrivals else total,
        total_s=total,
        gaps_s=tuple(late - early for early, late in itertools.pairwise(arrivals)),
    )


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data:") and not line.endswith("[DONE]"):
            yield json.loads(line[5:])
