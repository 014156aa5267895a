"""Drive any OpenAI-compatible server with N users x M turns, histories growing.

python -m bench.chat_load --url http://127.0.0.1:7860 --users 16 --turns 4 --max-tokens 48
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

from bench.openai_client import Reply, stream_chat
from bench.report import median, percentile, print_json, print_table
from bench.workload import ChatWorkload


class LoadResult(NamedTuple):
    """What came back: by turn the replies of every user who was answered."""

    turns: tuple[tuple[Reply, ...], ...]
    num_expected: int
    wall_s: float

    @property
    def replies(self) -> list[Reply]:
        return [reply for turn in self.turns for reply in turn]

    def figures(self) -> dict[str, Any]:
        """The keys that other programs read."""
        replies = self.replies
        prompt_tokens = sum(reply.prompt_tokens for reply in replies)
        cached = [reply.cached_tokens for reply in replies if reply.cached_tokens is not None]
        ttfts = [reply.ttft_s for reply in replies]
        return {
            "answered": len(replies),
            "expected": self.num_expected,
            "tokens_per_s": round(sum(r.output_tokens for r in replies) / self.wall_s, 2),
            "cached_share": round(sum(cached) / prompt_tokens, 4) if cached else None,
            "ttft_p50_s": round(percentile(ttfts, 0.5), 3),
            "ttft_p95_s": round(percentile(ttfts, 0.95), 3),
            "gap_p50_s": round(median([gap for reply in replies for gap in reply.gaps_s]), 4),
            "wall_s": round(self.wall_s, 2),
            "prompt_tokens": prompt_tokens,
            "output_tokens": sum(reply.output_tokens for reply in replies),
        }


async def run_load(
    url: str, workload: ChatWorkload, body: dict[str, Any], timeout_s: float = 600.0
) -> LoadResult:
    """Play the workload: every user starts at once and goes on as soon as answered."""
    limits = httpx.Limits(max_connections=workload.users + 4)
    headers = {"Authorization": f"Bearer {body.pop('api_key')}"} if body.get("api_key") else {}
    async with httpx.AsyncClient(
        base_url=url, timeout=timeout_s, limits=limits, headers=headers, trust_env=False
    ) as client:
        if "model" not in body:
            listed = (await client.get("/v1/models")).raise_for_status().json()
            body["model"] = listed["data"][0]["id"]
        start = time.perf_counter()
        chats = await asyncio.gather(
            *(_hold_chat(client, workload, user, body) for user in range(workload.users))
        )
        wall = time.perf_counter() - start
    by_turn = tuple(
        tuple(chat[turn] for chat in chats if len(chat) > turn) for turn in range(workload.turns)
    )
    return LoadResult(by_turn, workload.num_requests, wall)


async def _hold_chat(
    client: httpx.AsyncClient, workload: ChatWorkload, user: int, body: dict[str, Any]
) -> list[Reply]:
    """One person's chat; it ends early when a request fails, which `answered` shows."""
    history = [{"role": "system", "content": workload.system_prompt}]
    replies: list[Reply] = []
    own_body = {**body, "user": f"user-{user}", "max_tokens": workload.max_tokens}
    for message in workload.messages_of(user):
        history.append({"role": "user", "content": message})
        try:
            reply = await stream_chat(client, own_body, history)
        except httpx.HTTPError as error:
            print(f"user {user}, turn {len(replies) + 1}: {error}")
            break
        replies.append(reply)
        history.append({"role": "assistant", "content": reply.text})
    return replies


def print_turns(result: LoadResult) -> None:
    rows = []
    for number, turn in enumerate(result.turns, start=1):
        prompt = sum(reply.prompt_tokens for reply in turn)
        known = [reply.cached_tokens for reply in turn if reply.cached_tokens is not None]
        share = f"{sum(known) / prompt:.0%}" if known and prompt else "-"
        ttfts = [reply.ttft_s for reply in turn]
        gaps = [gap for reply in turn for gap in reply.gaps_s]
        rows.append(
            [number, len(turn), prompt, share, f"{percentile(ttfts, 0.5):.2f}",
             f"{percentile(ttfts, 0.95):.2f}", f"{1000 * median(gaps):.0f}"]
        )  # fmt: skip
    header = ["turn", "answered", "prompt tokens", "cached", "TTFT p50 s", "p95 s", "gap p50 ms"]
    print_table(header, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7860")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--api-key")
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--system-words", type=int, default=ChatWorkload().system_words)
    parser.add_argument("--message-words", type=int, default=ChatWorkload().message_words)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    workload = ChatWorkload(
        users=options.users,
        turns=options.turns,
        system_words=options.system_words,
        message_words=options.message_words,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )
    body: dict[str, Any] = {
        "temperature": options.temperature, "top_p": options.top_p, "ignore_eos": True,
    }  # fmt: skip
    if options.model:
        body["model"] = options.model
    if options.api_key:
        body["api_key"] = options.api_key
    result = asyncio.run(run_load(options.url, workload, body))
    print_turns(result)
    print_json(result.figures())


if __name__ == "__main__":
    main()
