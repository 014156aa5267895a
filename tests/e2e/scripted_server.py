"""A server that a test scripts: the conversations of docs/protocol.md in memory, and no engine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect

from tests.e2e.scripted_frames import DEFAULTS, MAX_CONTEXT, Json, answer_frame, message_frame

HOLD = "Hold the line"  # an answer to this goes on until it is stopped


class Refusal(Exception):  # noqa: N818 - what the server says, not a fault of the test
    def __init__(self, status: int, code: str, message: str = "Refused.", **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"code": code, "message": message, **details}


class ScriptedServer:
    """Conversations, presets and tabs; everything may be set from the test's own thread."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.calls: list[tuple[str, str, Json]] = []
        self.tabs: list[tuple[WebSocket, Json]] = []
        self.is_reachable = True
        self.reset()

    def reset(self) -> None:
        self.conversations: dict[str, Json] = {}
        self.deleted: dict[str, Json] = {}
        self.presets: dict[str, Json] = {}
        self.refusals: dict[str, list[Refusal]] = {}
        self.imported: list[bytes] = []
        self.import_result: Json = {"num_imported": 1, "num_known": 0, "problems": []}
        self.engine = self._engine("ready")
        self.defaults = dict(DEFAULTS)
        self.server_id = "server-1"
        self.calls.clear()

    # --- what a test does ---

    def add(self, title: str, *texts: str, age_s: float = 0, **changes: Any) -> str:
        """A conversation of alternating questions and answers; returns its id."""
        conversation_id = f"conversation-{len(self.conversations) + 1:04}"
        messages: list[Json] = []
        for index, text in enumerate(texts):
            parent = messages[-1]["message_id"] if messages else None
            role = "assistant" if index % 2 else "user"
            messages.append(message_frame(f"{conversation_id}-m{index}", parent, role, text))
        self.conversations[conversation_id] = {
            "conversation_id": conversation_id,
            "title": title,
            "is_pinned": False,
            "is_archived": False,
            "updated_s": time.time() - age_s,
            "settings": dict(DEFAULTS),
            "messages": messages,
            "num_earlier": 0,
            "context": {"used": 400, "max": MAX_CONTEXT},
            **changes,
        }
        return conversation_id

    def refuse(self, path: str, refusal: Refusal) -> None:
        """The next call of this path is refused."""
        self.refusals.setdefault(path, []).append(refusal)

    def set_engine(self, state: str, message: str = "", num_restarts: int = 0) -> None:
        self.engine = self._engine(state, message, num_restarts)
        self.run(self.tell({"type": "engine", **self.engine}))

    def set_context(self, conversation_id: str, used: int | None) -> None:
        context = None if used is None else {"used": used, "max": MAX_CONTEXT}
        self.conversations[conversation_id]["context"] = context
        self.run(self.show(conversation_id))

    def drop_connections(self, *, is_reachable: bool) -> None:
        self.is_reachable = is_reachable
        self.run(self._close_tabs())

    def bodies(self, method: str, path: str) -> list[Json]:
        return [body for was, at, body in self.calls if (was, at) == (method, path)]

    def run(self, coroutine: Any) -> None:
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    # --- the protocol ---

    @staticmethod
    def _engine(state: str, message: str = "", num_restarts: int = 0) -> Json:
        model = {"name": "tiny", "max_model_len": MAX_CONTEXT}
        return {"state": state, "message": message, "num_restarts": num_restarts, "model": model}

    async def _close_tabs(self) -> None:
        for socket, _ in list(self.tabs):
            await socket.close(1012)

    async def tell(self, frame: Json) -> None:
        for socket, _ in list(self.tabs):
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await socket.send_json(frame)

    async def show(self, conversation_id: str) -> None:
        for socket, tab in list(self.tabs):
            if tab["watched"] == conversation_id:
                await self._show_in(socket, conversation_id)
        if conversation_id in self.conversations:
            await self.tell({"type": "entry", "entry": self.entry(conversation_id)})
        else:
            await self.tell({"type": "entry_gone", "conversation_id": conversation_id})

    async def _show_in(self, socket: WebSocket, conversation_id: str) -> None:
        conversation = self.conversations.get(conversation_id)
        if conversation is None:
            await socket.send_json({"type": "gone", "conversation_id": conversation_id})
            return
        await socket.send_json({"type": "conversation", "conversation": conversation})
        for message in conversation["messages"]:
            if message["state"] == "writing":
                await socket.send_json(answer_frame(conversation_id, message))

    def entry(self, conversation_id: str) -> Json:
        conversation = self.conversations[conversation_id]
        names = ("conversation_id", "title", "is_pinned", "is_archived", "updated_s")
        is_answering = any(m["state"] == "writing" for m in conversation["messages"])
        return {name: conversation[name] for name in names} | {"is_answering": is_answering}

    async def listen(self, socket: WebSocket) -> None:
        if not self.is_reachable:
            await socket.close(1012)
            return
        await socket.accept()
        tab: Json = {"watched": None}
        self.tabs.append((socket, tab))
        try:
            await self._greet(socket)
            while True:
                frame = await socket.receive_json()
                if frame["type"] == "ping":
                    await socket.send_json({"type": "pong"})
                elif frame["type"] == "watch":
                    tab["watched"] = frame["conversation_id"]
                    if tab["watched"] is not None:
                        await self._show_in(socket, tab["watched"])
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            self.tabs.remove((socket, tab))

    async def _greet(self, socket: WebSocket) -> None:
        await socket.send_json({"type": "hello", "person": "abc", "server_id": self.server_id})
        await socket.send_json({"type": "engine", **self.engine})
        await socket.send_json({"type": "entries", "entries": self.entries(archived=False)})

    def entries(self, *, archived: bool) -> list[Json]:
        entries = [self.entry(conversation_id) for conversation_id in self.conversations]
        return [entry for entry in entries if entry["is_archived"] == archived]

    async def answer_call(self, method: str, path: str, query: Json, body: Json) -> Json:
        self.calls.append((method, path, body))
        if self.refusals.get(path):
            raise self.refusals[path].pop(0)
        match path.split("/"):
            case ["conversations"]:
                return {"entries": self.entries(archived=query.get("archived") == "1")}
            case ["search"]:
                return {"hits": self._search(query["q"])}
            case ["defaults"]:
                return {"settings": self.defaults}
            case ["count"]:
                return {"used": 400 + len(body["text"]) // 4, "max": MAX_CONTEXT}
            case ["ask"]:
                return await self._ask(body)
            case ["presets", *name]:
                return self._presets(method, name, body)
            case ["conversations", conversation_id, *rest]:
                return await self._conversation(method, conversation_id, rest, body)
            case ["messages", message_id, "regenerate"]:
                return await self._regenerate(message_id, body)
        raise Refusal(404, "not_found", f"There is no {path}.")

    def _search(self, words: str) -> list[Json]:
        hits = []
        for conversation_id, conversation in self.conversations.items():
            texts = [(None, conversation["title"])]
            texts += [(m["message_id"], m["text"]) for m in conversation["messages"]]
            for message_id, text in texts:
                start = text.lower().find(words.lower())
                if start >= 0:
                    hits.append(
                        {
                            "conversation_id": conversation_id,
                            "title": conversation["title"],
                            "message_id": message_id,
                            "excerpt": text,
                            "hit_start": start,
                            "hit_end": start + len(words),
                        }
                    )
        return hits

    def _presets(self, method: str, name: list[str], body: Json) -> Json:
        if method == "PUT":
            self.presets[name[0]] = body["settings"]
        if method == "DELETE":
            del self.presets[name[0]]
        presets = [{"name": key, "settings": value} for key, value in self.presets.items()]
        return {"presets": presets}

    async def _conversation(self, method: str, key: str, rest: list[str], body: Json) -> Json:
        answer: Json = {}
        if rest == ["restore"]:
            self.conversations[key] = self.deleted.pop(key)
            answer = self.entry(key)
        elif key not in self.conversations:
            raise Refusal(404, "not_found", "There is no such conversation.")
        elif method == "DELETE":
            self.deleted[key] = self.conversations.pop(key)
        elif rest == ["stop"]:
            await self.end(key, "stopped")
            return {}
        elif method == "GET":
            return self.conversations[key]
        else:
            self.conversations[key].update(body)
            answer = self.entry(key)
        await self.show(key)
        return answer

    async def _ask(self, body: Json) -> Json:
        key = body["conversation_id"] or self.add(body["text"][:60], context=None)
        conversation = self.conversations[key]
        conversation["settings"] = body["settings"]
        conversation["updated_s"] = time.time()
        messages = conversation["messages"]
        if any(message["state"] == "writing" for message in messages):
            raise Refusal(409, "conflict", "An answer is still being written in this chat.")
        parent = messages[-1]["message_id"] if messages else None
        messages.append(message_frame(body["question_id"], parent, "user", body["text"]))
        return await self._answer(key, body["text"])

    async def _regenerate(self, message_id: str, body: Json) -> Json:
        key = next(k for k, c in self.conversations.items() if _has(c, message_id))
        messages = self.conversations[key]["messages"]
        messages.pop()
        return await self._answer(key, messages[-1]["text"])

    async def _answer(self, key: str, text: str) -> Json:
        conversation = self.conversations[key]
        question = conversation["messages"][-1]
        answer_id = f"{question['message_id']}-answer-{len(self.calls)}"
        answer = message_frame(answer_id, question["message_id"], "assistant", f"Echo: {text}")
        conversation["messages"].append(answer | {"state": "writing"})
        await self.show(key)
        if text != HOLD:
            await self.end(key, "done")
        return {
            "conversation_id": key,
            "question_id": question["message_id"],
            "answer_id": answer_id,
        }

    async def end(self, key: str, state: str) -> None:
        conversation = self.conversations[key]
        for message in conversation["messages"]:
            if message["state"] == "writing":
                message |= {"state": state, "revision": message["revision"] + 1}
        conversation["context"] = {"used": 400, "max": MAX_CONTEXT}
        await self.show(key)


def _has(conversation: Json, message_id: str) -> bool:
    return any(message["message_id"] == message_id for message in conversation["messages"])
