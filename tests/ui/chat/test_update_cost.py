"""What a piece of text costs the server must not grow with the history before it."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

from tests.chat_factories import Desk, events_until, opened, say_all, until
from tests.factories import make_model_info

NUM_EVENTS = 200
NUM_ROUNDS = 5
MAX_RATIO = 1.5
LARGE = make_model_info(max_model_len=10**6, num_blocks=10**5)
CODE = "Some code:\n\n```python\n" + "\n".join(f"value_{n} = {n}" for n in range(40)) + "\n```\n"


async def conversation_of(desk: Desk, num_messages: int) -> str:
    asked = await desk.answered("What is it?", CODE)
    for _ in range(num_messages // 2 - 1):
        await desk.answered("And then?", CODE, asked["conversation_id"])
    return str(asked["conversation_id"])


async def update_cost_s(desk: Desk, conversation_id: str) -> float:
    """CPU seconds of one piece of text on its way to one page, as it is sent."""
    await desk.ask("Go on", conversation_id)
    stream = desk.engine.streams[-1]
    watch = desk.conversations.open_watch("alice")
    watch._answer_interval_s = 0.0
    watch.show(conversation_id)
    await events_until(watch, lambda event: event["type"] == "conversation")
    start_s = time.process_time()
    for number in range(NUM_EVENTS):
        stream.say("word ", token_ids=(number,))
        (event,) = (await events_until(watch, has_text))[-1:]
        json.dumps(event)
    cost_s = (time.process_time() - start_s) / NUM_EVENTS
    watch.close()
    say_all(stream, "The end.")
    await until(lambda: desk.answers.find("alice", conversation_id) is None)
    return cost_s


def has_text(event: dict[str, Any]) -> bool:
    return event["type"] == "answer" and "word" in (event["text"] or "")


def test_an_update_costs_no_more_in_a_long_conversation(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[float], list[float]]:
        async with opened(tmp_path, info=LARGE) as desk:
            short = await conversation_of(desk, 2)
            long = await conversation_of(desk, 300)
            costs: tuple[list[float], list[float]] = ([], [])
            for _ in range(NUM_ROUNDS):
                for conversation_id, found in zip((short, long), costs, strict=True):
                    found.append(await update_cost_s(desk, conversation_id))
            return costs

    of_short, of_long = asyncio.run(scenario())
    ratio = statistics.median(of_long) / statistics.median(of_short)
    assert ratio <= MAX_RATIO, f"{of_long} s in a long one, {of_short} s in a short one"
