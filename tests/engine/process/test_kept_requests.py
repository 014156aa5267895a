from __future__ import annotations

from engine.loop_news import LoopNews
from engine.process.kept_requests import KeptRequest, KeptRequests
from engine.request import FinishReason, RequestOutput


def keep(*request_ids: str) -> KeptRequests:
    kept = KeptRequests()
    for request_id in request_ids:
        kept.add(KeptRequest(request_id, b"", None))
    return kept


def ids(requests: list[KeptRequest]) -> list[str]:
    return [request.request_id for request in requests]


def test_each_process_gets_each_request_once_in_order_of_arrival() -> None:
    kept = keep("b", "a", "c")
    assert ids(kept.take_unsent(1, ["a"])) == ["a"]
    assert ids(kept.take_unsent(1)) == ["b", "c"]
    assert kept.take_unsent(1) == []
    assert ids(kept.take_unsent(2)) == ["b", "a", "c"]
    assert kept.take_unsent(2, ["nobody"]) == []


def test_news_tell_who_started_and_who_ended() -> None:
    kept = keep("a", "b")
    kept.note(LoopNews(0.0, started=("a", "nobody")))
    last = RequestOutput(request_id="b", finish_reason=FinishReason.STOP)
    kept.note(LoopNews(0.0, (RequestOutput(request_id="a", text="x"), last)))
    (request,) = kept.all()
    assert (request.request_id, request.num_starts) == ("a", 1)


def test_only_one_can_end_a_request() -> None:
    kept = keep("a")
    assert kept.abort("a") is not None
    assert [kept.remove("a"), kept.remove("a")] == [True, False]
    assert (kept.abort("a"), len(kept)) == (None, 0)
