"""What open pages hear, and how much of it when they listen slowly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine import EngineState, FinishReason, RequestProgress, RequestStatus, Usage
from tests.chat_factories import Desk, events_until, opened, say_all, until
from ui.chat.conversation import ChatError
from ui.chat.settings import ChatSettings
from ui.chat.watch import Watch

Event = dict[str, Any]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def is_type(kind: str) -> Callable[[Event], bool]:
    return lambda event: bool(event["type"] == kind)


def ends(event: Event) -> bool:
    """A conversation in which nothing is being written."""
    if event["type"] != "conversation":
        return False
    messages = event["conversation"]["messages"]
    return bool(messages) and messages[-1]["state"] not in ("writing",)


def watch_of(desk: Desk, person: str = "alice", **times: float) -> Watch:
    """In real time, unlike the desk."""
    watch = desk.conversations.open_watch(person)
    watch._clock = time.monotonic
    watch._answer_interval_s = times.get("interval_s", 0.005)
    watch._heartbeat_s = times.get("heartbeat_s", 2.0)
    return watch


async def shown_answer(desk: Desk, watch: Watch) -> Event:
    """A question of Alice's that is being answered, shown by this watch."""
    asked = await desk.ask("Hello")
    watch.show(asked["conversation_id"])
    await events_until(watch, is_type("answer"))
    return asked


def test_a_page_hears_the_state_of_things_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.answered("Hello", "Hi")
            watch = watch_of(desk)
            events = await events_until(watch, is_type("entries"))
            assert events[0] == {
                "type": "engine",
                "state": "ready",
                "message": "The model is ready.",
                "num_restarts": 0,
                "model": {"name": "tiny", "max_model_len": 4096},
            }
            assert events[1]["entries"] == [
                {
                    "conversation_id": asked["conversation_id"],
                    "title": "Hello",
                    "is_pinned": False,
                    "is_archived": False,
                    "updated_s": 0.0,
                    "is_answering": False,
                }
            ]
            watch.show(asked["conversation_id"])
            (event,) = await events_until(watch, is_type("conversation"))
            assert [m["text"] for m in event["conversation"]["messages"]] == ["Hello", "Hi"]
            assert event["conversation"]["context"] == {"used": 43, "max": 4096}

    run(scenario())


def test_br_66_a_second_page_sees_all_from_the_start_and_both_the_same_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            first = watch_of(desk)
            asked = await shown_answer(desk, first)
            stream = desk.engine.streams[0]
            stream.say("Hi ", token_ids=(1,), usage=Usage(40, 0, 1))
            events = await events_until(first, lambda event: bool(event.get("text")))
            assert (events[-1]["text"], events[-1]["is_whole"]) == ("Hi ", False)
            second = watch_of(desk)
            second.show(asked["conversation_id"])
            whole = (await events_until(second, is_type("answer")))[-1]
            assert (whole["text"], whole["is_whole"], whole["phase"]) == ("Hi ", True, "writing")
            stream.say("there", token_ids=(2,), usage=Usage(40, 0, 2))
            for watch in (first, second):
                event = (await events_until(watch, lambda event: bool(event.get("text"))))[-1]
                assert (event["text"], event["is_whole"]) == ("there", False)
            stream.say(finish_reason=FinishReason.STOP, usage=Usage(40, 0, 3))
            for watch in (first, second):
                last = (await events_until(watch, ends))[-1]["conversation"]["messages"][-1]
                assert (last["text"], last["state"]) == ("Hi there", "done")

    run(scenario())


def test_a_slow_page_gets_fewer_and_larger_events_and_loses_no_text(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            fast, slow = watch_of(desk), watch_of(desk)
            asked = await shown_answer(desk, fast)
            slow.show(asked["conversation_id"])
            await events_until(slow, is_type("answer"))
            texts: dict[Watch, list[str]] = {fast: [], slow: []}

            async def read(watch: Watch, pause_s: float) -> None:
                async for event in watch:
                    if event["type"] == "answer":
                        assert not event["is_whole"]
                        texts[watch].append(event["text"])
                        await asyncio.sleep(pause_s)
                    if "".join(texts[watch]).endswith("249 "):
                        return

            readers = [asyncio.create_task(read(fast, 0)), asyncio.create_task(read(slow, 0.2))]
            for number in range(250):
                desk.engine.streams[0].say(f"{number} ", token_ids=(number,))
                await asyncio.sleep(0.002)
            await asyncio.gather(*readers)
            expected = "".join(f"{number} " for number in range(250))
            assert ["".join(texts[watch]) for watch in (fast, slow)] == [expected, expected]
            assert len(texts[slow]) < len(texts[fast]) / 3

    run(scenario())


def test_at_most_so_often_and_at_least_so_often(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk, interval_s=0.1, heartbeat_s=0.3)
            await shown_answer(desk, watch)
            times: list[float] = []

            async def read() -> None:
                async for event in watch:
                    if event["type"] == "answer":
                        times.append(time.monotonic())

            reading = asyncio.create_task(read())
            for number in range(100):
                desk.engine.streams[0].say("x", token_ids=(number,))
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.8)
            gaps = [later - earlier for earlier, later in pairwise(times)]
            assert min(gaps) > 0.09
            assert len(times) >= 4
            assert sum(gap > 0.25 for gap in gaps) >= 2  # heartbeats while nothing is said
            watch.close()
            await reading

    run(scenario())


def test_the_phases_of_an_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            first = await desk.answered("Hello", "Hi")
            watch = watch_of(desk)
            watch.show(first["conversation_id"])
            await events_until(watch, is_type("conversation"))
            desk.engine.preparing = asyncio.Event()
            desk.engine.abort = lambda request_id: None  # type: ignore[method-assign]
            asking = asyncio.create_task(desk.ask("More", first["conversation_id"]))
            event = (await events_until(watch, is_type("answer")))[-1]
            assert (event["phase"], event["text"], event["is_whole"]) == ("preparing", "", True)
            desk.engine.preparing.set()
            asked = await asking
            assert event["message_id"] == asked["answer_id"]
            stream = desk.engine.streams[1]
            wanted = RequestProgress(RequestStatus.WAITING, 3, 0, 40, 2.5)
            stream.progress = wanted
            event = (await events_until(watch, lambda e: e.get("phase") == "queued"))[-1]
            assert (event["queue_position"], event["num_prompt_tokens"]) == (3, None)
            stream.progress = RequestProgress(RequestStatus.RUNNING, None, 16, 40)
            event = (await events_until(watch, lambda e: e.get("phase") == "reading"))[-1]
            assert (event["num_computed_tokens"], event["num_prompt_tokens"]) == (16, 40)
            stream.say("Hi", token_ids=(1,), usage=Usage(40, 0, 1))
            event = (await events_until(watch, lambda e: e.get("phase") == "writing"))[-1]
            assert (event["text"], event["num_output_tokens"]) == ("Hi", 1)
            await desk.conversations.stop("alice", first["conversation_id"])
            await events_until(watch, lambda e: e.get("phase") == "stopping")

    run(scenario())


def test_stop_reaches_the_other_tab(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            here, there = watch_of(desk), watch_of(desk)
            asked = await shown_answer(desk, here)
            there.show(asked["conversation_id"])
            await events_until(there, is_type("answer"))
            await desk.conversations.stop("alice", asked["conversation_id"])
            for watch in (here, there):
                last = (await events_until(watch, ends))[-1]["conversation"]["messages"][-1]
                assert last["state"] == "stopped"

    run(scenario())


def test_a_text_is_sent_once_at_each_revision(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.answered("Hello", "Hi")
            watch = watch_of(desk)
            watch.show(asked["conversation_id"])
            await events_until(watch, is_type("conversation"))
            edited = await desk.conversations.edit("alice", asked["answer_id"], "Hi!")
            event = (await events_until(watch, is_type("conversation")))[-1]
            messages = event["conversation"]["messages"]
            assert [message["text"] for message in messages] == [None, "Hi!"]
            assert messages[1]["variant_ids"] == [asked["answer_id"], edited["message_id"]]
            watch.show(asked["conversation_id"])  # a page that begins anew gets all of it
            event = (await events_until(watch, is_type("conversation")))[-1]
            texts = [message["text"] for message in event["conversation"]["messages"]]
            assert texts == ["Hello", "Hi!"]

    run(scenario())


def test_a_page_gets_the_end_of_a_long_conversation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.answered("Question 0", "Answer 0")
            for number in range(1, 25):
                text = f"Question {number}"
                await desk.answered(text, f"Answer {number}", asked["conversation_id"])
            watch = watch_of(desk)
            watch.show(asked["conversation_id"])
            event = (await events_until(watch, is_type("conversation")))[-1]
            shown = event["conversation"]
            assert (len(shown["messages"]), shown["num_earlier"]) == (40, 10)
            assert shown["messages"][-1]["text"] == "Answer 24"
            before = shown["messages"][0]["message_id"]
            earlier = await desk.conversations.conversation(
                "alice", asked["conversation_id"], before=before
            )
            assert [m["text"] for m in earlier["messages"]][:2] == ["Question 0", "Answer 0"]
            assert len(earlier["messages"]) == 10

    run(scenario())


def test_br_59_nothing_of_anothers_is_heard(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            bob = watch_of(desk, "bob")
            asked = await desk.ask("Canary")
            bob.show(asked["conversation_id"])
            events: list[Event] = []

            async def read() -> None:
                async for event in bob:
                    events.append(event)

            reading = asyncio.create_task(read())
            await until(lambda: len(events) == 3)
            say_all(desk.engine.streams[0], "Secret")
            await desk.end_of(asked)
            await desk.conversations.patch("alice", asked["conversation_id"], title="Canary")
            await desk.conversations.delete("alice", asked["conversation_id"])
            await asyncio.sleep(0.05)
            bob.close()
            await reading
            assert [event["type"] for event in events] == ["engine", "entries", "gone"]
            assert events[1]["entries"] == []
            assert "Canary" not in repr(events)

    run(scenario())


def test_the_list_follows_what_happens(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk)
            await events_until(watch, is_type("entries"))
            asked = await desk.ask("Hello")
            conversation_id = asked["conversation_id"]
            event = (await events_until(watch, is_type("entry")))[-1]
            assert event["entry"]["is_answering"]
            say_all(desk.engine.streams[0], "Hi")
            await events_until(watch, lambda e: not e["entry"]["is_answering"])
            await desk.conversations.patch("alice", conversation_id, is_pinned=True, title="New")
            await events_until(watch, lambda e: e["entry"]["title"] == "New")
            await desk.conversations.delete("alice", conversation_id)
            event = (await events_until(watch, is_type("entry_gone")))[-1]
            assert event["conversation_id"] == conversation_id
            entry = await desk.conversations.restore("alice", conversation_id)
            event = (await events_until(watch, is_type("entry")))[-1]
            assert event["entry"] == entry
            assert entry["is_pinned"]

    run(scenario())


def test_marks_do_not_grow_while_nobody_reads(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk)
            await events_until(watch, is_type("entries"))
            for number in range(1000):
                watch.entry_changed(f"c{number}")
            assert len(watch._changed_entries) <= 50
            (event,) = await events_until(watch, lambda event: True)
            assert event["type"] == "entries"

    run(scenario())


def test_an_answer_costs_no_reading_of_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk)
            await shown_answer(desk, watch)
            num_reads = 0
            read = desk.store.conversation

            def counted(*arguments: Any, **options: Any) -> Any:
                nonlocal num_reads
                num_reads += 1
                return read(*arguments, **options)

            monkeypatch.setattr(desk.store, "conversation", counted)
            for number in range(50):
                desk.engine.streams[0].say("word ", token_ids=(number,))
                await events_until(watch, lambda event: bool(event.get("text")))
            assert num_reads == 0

    run(scenario())


def test_a_watched_conversation_that_goes_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk)
            watch.show("nowhere-nowhere-")
            event = (await events_until(watch, is_type("gone")))[-1]
            assert event["conversation_id"] == "nowhere-nowhere-"
            asked = await shown_answer(desk, watch)
            await desk.conversations.delete("alice", asked["conversation_id"])
            await events_until(watch, is_type("gone"))
            await until(lambda: desk.answers.find("alice", asked["conversation_id"]) is None)
            await desk.conversations.restore("alice", asked["conversation_id"])
            last = (await events_until(watch, ends))[-1]["conversation"]["messages"][-1]
            assert last["state"] == "stopped"

    run(scenario())


def test_pages_hear_of_the_engine(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk)
            await events_until(watch, is_type("entries"))
            desk.engine.state = EngineState.RESTARTING
            event = (await events_until(watch, is_type("engine")))[-1]
            assert (event["state"], event["message"]) == (
                "restarting",
                "The model is restarting.",
            )

    run(scenario())


def test_a_database_that_fails_for_a_moment_costs_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            asked = await desk.answered("Hello", "Hi")
            read = desk.store.conversation
            failures = [OSError("I/O error")]

            def failing(*arguments: Any, **options: Any) -> Any:
                if failures:
                    raise failures.pop()
                return read(*arguments, **options)

            monkeypatch.setattr(desk.store, "conversation", failing)
            monkeypatch.setattr("ui.chat.watch._RETRY_S", 0.01)
            watch = watch_of(desk)
            watch.show(asked["conversation_id"])
            event = (await events_until(watch, is_type("conversation")))[-1]
            assert event["conversation"]["messages"][-1]["text"] == "Hi"

    run(scenario())


def test_the_end_of_the_server_ends_the_news(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk)
            reading = asyncio.create_task(events_until(watch, is_type("gone")))
            await asyncio.sleep(0.01)
            await desk.conversations.close()
            with pytest.raises(AssertionError, match="the watch ended"):
                await reading
            with pytest.raises(ChatError, match="is stopping"):
                await desk.ask("Hello", settings=ChatSettings())

    run(scenario())


async def all_of(watch: Watch) -> list[Event]:
    """Until it is closed."""
    return [event async for event in watch]


def check_canaries(events: list[Event], own: int, others: list[int]) -> None:
    """A page saw all of its own conversation, and not a word of the others'."""
    shown = [event["conversation"] for event in events if ends(event)][-1]
    assert shown["messages"][-1]["text"] == f"Bird-{own} " * 20
    assert shown["settings"]["system_prompt"] == f"System-{own}"
    said = repr(events)
    for other in others:
        for secret in (f"Bird-{other}", f"System-{other}", f"Canary-{other}"):
            assert secret not in said


def test_br_59_five_people_stream_at_once_and_nothing_crosses(tmp_path: Path) -> None:
    """Two of the tabs are of one person."""
    people = ["p0", "p1", "p2", "p3", "p3"]

    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watches = [watch_of(desk, person) for person in people]
            readers = [asyncio.create_task(all_of(watch)) for watch in watches]
            asked: list[Event] = []
            for tab, person in enumerate(people):
                settings = ChatSettings(system_prompt=f"System-{tab}")
                asked.append(await desk.ask(f"Canary-{tab}", person=person, settings=settings))
                watches[tab].show(asked[tab]["conversation_id"])
            for number in range(100):
                stream = desk.engine.streams[number % 5]
                stream.say(f"Bird-{number % 5} ", token_ids=(number,))
                await asyncio.sleep(0.001)
            for tab, person in enumerate(people):
                desk.engine.streams[tab].say(finish_reason=FinishReason.STOP)
                await desk.end_of(asked[tab], person)
            await asyncio.sleep(0.1)
            for watch in watches:
                watch.close()
            for tab, events in enumerate(await asyncio.gather(*readers)):
                others = [other for other in range(5) if people[other] != people[tab]]
                check_canaries(events, tab, others)
                request = desk.engine.requests[tab]
                assert [m.content for m in request.messages] == [f"System-{tab}", f"Canary-{tab}"]
                assert request.owner == request.user == people[tab]

    run(scenario())


def test_br_59_a_new_visitor_sees_an_empty_list_and_the_defaults(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            await desk.ask("Canary", settings=ChatSettings(system_prompt="Secret", max_tokens=7))
            visitor = watch_of(desk, "visitor")
            event = (await events_until(visitor, is_type("entries")))[-1]
            assert event["entries"] == []
            defaults = (await desk.conversations.defaults())["settings"]
            assert (defaults["system_prompt"], defaults["max_tokens"]) == ("", 512)
            assert (await desk.conversations.presets("visitor"))["presets"] == []
            assert (await desk.conversations.search("visitor", "Canary"))["hits"] == []

    run(scenario())


def test_br_66_a_fast_answer_leaves_no_backlog_and_stop_is_seen_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as desk:
            watch = watch_of(desk, interval_s=0.125)
            asked = await shown_answer(desk, watch)
            for number in range(20_000):
                desk.engine.streams[0].say("word ", token_ids=(number,))
            await until(
                lambda: desk.answers.find("alice", asked["conversation_id"]).num_parts == 20_000
            )
            stopped_s = time.monotonic()
            await desk.conversations.stop("alice", asked["conversation_id"])
            events = await events_until(watch, ends)
            assert time.monotonic() - stopped_s < 1.0
            assert len(events) < 10
            last = events[-1]["conversation"]["messages"][-1]
            assert (last["text"], last["state"]) == ("word " * 20_000, "stopped")

    run(scenario())
