"""What reaches a process, and what the next one is told again."""

from __future__ import annotations

from engine.process.kept_requests import KeptRequest, KeptRequests
from engine.process.messages import AbortRequest, Command, ForgetConversations, make_codec
from engine.process.sender import Sender
from engine.request import FinishReason


class FakeProcess:
    """Takes messages as long as it lives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_alive = True
        self.received: list[Command] = []

    def send(self, message: bytes) -> bool:
        if self.is_alive:
            self.received.append(make_codec().command(message))
        return self.is_alive


def make_sender(kept: KeptRequests) -> Sender:
    def end(request_id: str, reason: FinishReason) -> None:
        raise AssertionError(f"{request_id} was ended")

    sender = Sender(kept, end)
    sender.start()
    return sender


def test_what_is_forgotten_comes_after_what_was_aborted_before() -> None:
    kept, process = KeptRequests(), FakeProcess(1)
    sender = make_sender(kept)
    kept.add(KeptRequest("r", make_codec().encode(AbortRequest("stands for a request")), None))
    sender.attach(process)  # type: ignore[arg-type]
    sender.abort("r")
    sender.forget(["c1", "c2"])
    sender.close()
    assert process.received[1:] == [AbortRequest("r"), ForgetConversations(("c1", "c2"))]


def test_what_is_forgotten_while_no_process_serves_is_told_to_the_next() -> None:
    sender, process = make_sender(KeptRequests()), FakeProcess(1)
    sender.forget(["c1"])
    sender.attach(process)  # type: ignore[arg-type]
    sender.close()
    assert process.received == [ForgetConversations(("c1",))]


def test_a_process_that_may_have_died_before_it_forgot_is_followed_by_one_that_does() -> None:
    kept = KeptRequests()
    sender, first, second = make_sender(kept), FakeProcess(1), FakeProcess(2)
    sender.attach(first)  # type: ignore[arg-type]
    sender.forget(["c1"])
    sender.attach(None)
    kept.add(KeptRequest("r", make_codec().encode(AbortRequest("stands for a request")), None))
    sender.attach(second)  # type: ignore[arg-type]
    sender.close()
    assert second.received == [
        ForgetConversations(("c1",)),
        AbortRequest("stands for a request"),
    ]
