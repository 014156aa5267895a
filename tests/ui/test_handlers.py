"""The chat page's actions, without a page."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from engine import EngineDeadError, EngineState, FinishReason, Usage
from tests.factories import make_model_info
from tests.fakes import ScriptedChat
from ui.chat.answers import Answers
from ui.chat.chats import ChatLimits, ChatStore, Role
from ui.chat.settings import ChatSettings
from ui.handlers import NEW_CHAT, ChatHandlers, ContextUse, View


class Desk:
    """Handlers on a scripted engine."""

    def __init__(self, limits: ChatLimits | None = None) -> None:
        self.engine = ScriptedChat(make_model_info(generation_defaults={"temperature": 0.2}))
        self.store = ChatStore(limits)
        answers = Answers(self.engine, self.engine, self.store)  # type: ignore[arg-type]
        self.handlers = ChatHandlers(self.engine, self.store, answers)

    async def send(self, person: str, chat_id: str, text: str, **settings: Any) -> View:
        return await self.handlers.send(person, chat_id, text, ChatSettings(**settings))

    async def answered_chat(self, person: str, question: str, reply: str) -> str:
        """A chat with one turn; returns its id."""
        chat_id = (await self.send(person, NEW_CHAT, question)).chat_id
        assert chat_id
        await self.finish(person, chat_id, reply)
        return chat_id

    async def finish(self, person: str, chat_id: str, reply: str) -> View:
        """Let the newest answer end; returns what its watcher saw last."""
        usage = Usage(40, 32, 8)
        self.engine.streams[-1].say(reply, token_ids=(1,), usage=usage)
        self.engine.streams[-1].say(finish_reason=FinishReason.STOP, usage=usage)
        return [view async for view in self.handlers.watch(person, chat_id)][-1]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def texts(view: View) -> list[str]:
    assert view.messages is not None
    return [message.text for message in view.messages]


def test_br_59_a_new_visitor_sees_an_empty_chat_with_the_models_defaults() -> None:
    async def scenario() -> None:
        desk = Desk()
        await desk.send("alice", NEW_CHAT, "canary", system_prompt="secret")
        view = desk.handlers.open_page("bob")
        assert (view.chat_id, view.messages, view.chats) == (NEW_CHAT, (), ())
        assert view.settings == ChatSettings(temperature=0.2)
        assert view.context == ContextUse(0, 512)

    run(scenario())


def test_br_59_another_persons_chat_cannot_be_opened_or_acted_on() -> None:
    async def scenario() -> None:
        desk = Desk()
        chat_id = await desk.answered_chat("alice", "canary", "reply")
        opened = desk.handlers.open_chat("bob", chat_id)
        assert (opened.chat_id, opened.messages) == (NEW_CHAT, ())
        assert (await desk.send("bob", chat_id, "mine now")).notice == opened.notice
        again = await desk.handlers.regenerate("bob", chat_id, ChatSettings())
        assert (
            again.notice == opened.notice == ("This chat is not there any more. Start a new one.")
        )
        desk.handlers.delete("bob", chat_id)
        assert [view async for view in desk.handlers.watch("bob", chat_id)] == []
        assert texts(desk.handlers.open_page("alice")) == ["canary", "reply"]

    run(scenario())


def test_a_turn_from_send_to_its_end() -> None:
    async def scenario() -> None:
        desk = Desk()
        asked = await desk.send("alice", NEW_CHAT, "Hello")
        assert (asked.question, asked.is_answering, texts(asked)) == ("", True, ["Hello"])
        assert asked.chat_id
        ended = await desk.finish("alice", asked.chat_id, "Hi!")
        assert (ended.live_text, ended.is_answering, texts(ended)) == ("", False, ["Hello", "Hi!"])
        assert (ended.question, ended.settings) == (None, None)
        assert ended.context == ContextUse(48, 512)

    run(scenario())


def test_br_66_a_reload_finds_the_text_so_far_and_the_settings() -> None:
    async def scenario() -> None:
        desk = Desk()
        asked = await desk.send("alice", NEW_CHAT, "Hello", temperature=1.5, system_prompt="Hum.")
        desk.engine.streams[0].say("Half a", token_ids=(1,), usage=Usage(40, 0, 1))
        await asyncio.sleep(0.01)
        opened = desk.handlers.open_page("alice")
        assert (opened.chat_id, opened.is_answering) == (asked.chat_id, True)
        assert opened.settings == ChatSettings(temperature=1.5, system_prompt="Hum.")
        watching = desk.handlers.watch("alice", str(asked.chat_id))
        assert (await anext(watching)).live_text == "Half a"

    run(scenario())


def test_br_60_stop_then_send_and_regenerate_keep_the_history() -> None:
    async def scenario() -> None:
        desk = Desk()
        chat_id = await desk.answered_chat("alice", "One", "First")
        await desk.send("alice", chat_id, "Two")
        desk.engine.streams[-1].say("Half", token_ids=(1,), usage=Usage(40, 0, 1))
        for _ in range(2):
            desk.handlers.stop("alice", chat_id)
        stopped = [view async for view in desk.handlers.watch("alice", chat_id)][-1]
        assert texts(stopped) == ["One", "First", "Two", "Half"]
        again = await desk.handlers.regenerate("alice", chat_id, ChatSettings())
        assert texts(again) == ["One", "First", "Two"]
        assert texts(await desk.finish("alice", chat_id, "Whole"))[-1] == "Whole"

    run(scenario())


def test_what_cannot_be_sent_stays_in_the_box_with_a_notice() -> None:
    async def scenario() -> None:
        desk = Desk(ChatLimits(max_message_chars=10))
        desk.engine.refusals = [EngineDeadError("The engine has stopped: restart Hearth.")]
        refused = await desk.send("alice", NEW_CHAT, "Hello")
        assert refused == View(notice="The engine has stopped: restart Hearth.")
        assert (await desk.send("alice", NEW_CHAT, "x" * 11)).notice is not None
        wrong = await desk.send("alice", NEW_CHAT, "Hello", temperature=3)
        assert wrong == View(notice="temperature must be from 0 to 2, not 3.0.")
        assert desk.store.chats_of("alice") == ()

    run(scenario())


def test_a_refused_regenerate_keeps_the_reply() -> None:
    async def scenario() -> None:
        desk = Desk()
        chat_id = await desk.answered_chat("alice", "One", "First")
        desk.engine.refusals = [EngineDeadError("The engine has stopped.")]
        assert (await desk.handlers.regenerate("alice", chat_id, ChatSettings())).notice
        assert texts(desk.handlers.open_page("alice")) == ["One", "First"]

    run(scenario())


def test_two_sends_at_once_are_one() -> None:
    async def scenario() -> None:
        desk = Desk()
        chat_id = (await desk.send("alice", NEW_CHAT, "One")).chat_id
        second = await desk.send("alice", str(chat_id), "Two")
        assert second.notice is not None
        assert "still being written" in second.notice
        assert (second.question, len(desk.engine.requests)) == (None, 1)

    run(scenario())


def test_br_43_an_empty_box_and_an_empty_chat_change_nothing() -> None:
    async def scenario() -> None:
        desk = Desk()
        assert await desk.send("alice", NEW_CHAT, " \n") == View()
        again = await desk.handlers.regenerate("alice", NEW_CHAT, ChatSettings())
        assert again.notice == "There is nothing to answer again yet. Write a message first."
        assert desk.engine.requests == []

    run(scenario())


def test_while_the_model_loads_the_page_says_so_and_recovers_by_itself() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.engine.state = EngineState.LOADING
        opened = desk.handlers.open_page("alice")
        assert (opened.notice, opened.is_ready) == ("The model is loading.", False)
        watching = desk.handlers.watch("alice", NEW_CHAT)
        waiting = await anext(watching)
        assert (waiting.notice, waiting.is_ready) == ("The model is loading.", False)
        desk.engine.state = EngineState.READY
        ready = await anext(watching)
        assert (ready.notice, ready.is_ready) == ("", True)
        assert ready.settings == ChatSettings(temperature=0.2)

    run(scenario())


def test_a_failed_load_is_told_and_not_waited_for() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.engine.state = EngineState.FAILED
        assert desk.handlers.open_page("alice").notice == "The model is failed."
        assert len([view async for view in desk.handlers.watch("alice", NEW_CHAT)]) == 1

    run(scenario())


def test_deleting_a_chat_stops_its_answer_and_opens_the_one_before() -> None:
    async def scenario() -> None:
        desk = Desk()
        await desk.answered_chat("alice", "One", "First")
        second = await desk.send("alice", NEW_CHAT, "Two")
        view = desk.handlers.delete("alice", str(second.chat_id))
        assert texts(view) == ["One", "First"]
        await asyncio.sleep(0.01)
        assert [chat.title for chat in desk.store.chats_of("alice")] == ["One"]
        assert desk.handlers.resume("alice", str(second.chat_id)).chat_id == view.chat_id

    run(scenario())


def test_resuming_leaves_what_is_typed_and_set() -> None:
    async def scenario() -> None:
        desk = Desk()
        chat_id = await desk.answered_chat("alice", "One", "First")
        view = desk.handlers.resume("alice", chat_id)
        assert texts(view) == ["One", "First"]
        assert (view.question, view.settings, view.notice) == (None, None, None)
        assert view.messages is not None
        assert view.messages[1].role is Role.ASSISTANT

    run(scenario())
