from __future__ import annotations

from collections.abc import Mapping

from engine.fair_queue import FairQueue, UserKey
from engine.request import Request
from tests.engine_factories import make_request

ANN: UserKey = ("ann", "")


def add(queue: FairQueue, request_id: str, user: str | None, arrival_s: float = 0.0) -> Request:
    request = make_request(request_id, user=user, arrival_s=arrival_s)
    queue.add(request)
    return request


def order(queue: FairQueue, num_running: Mapping[UserKey, int] | None = None) -> list[str]:
    return [request.request_id for request in queue.order(num_running or {})]


def test_one_user_is_served_in_order_of_arrival() -> None:
    queue = FairQueue()
    for index in range(3):
        add(queue, f"a{index}", "ann", arrival_s=index)
    assert order(queue) == ["a0", "a1", "a2"]


def test_ten_requests_of_one_do_not_delay_one_of_another() -> None:
    queue = FairQueue()
    for index in range(10):
        add(queue, f"a{index}", "ann", arrival_s=index)
    add(queue, "b0", "bob", arrival_s=10)
    assert order(queue)[:3] == ["a0", "b0", "a1"]


def test_the_least_served_user_comes_first() -> None:
    queue = FairQueue()
    ann = add(queue, "a", "ann", arrival_s=0)
    add(queue, "b", "bob", arrival_s=1)
    queue.charge(ann, 5)
    assert order(queue) == ["b", "a"]


def test_who_runs_nothing_comes_before_who_runs_something() -> None:
    queue = FairQueue()
    add(queue, "a", "ann", arrival_s=0)
    bob = add(queue, "b", "bob", arrival_s=1)
    queue.charge(bob, 100)
    assert order(queue, {ANN: 1}) == ["b", "a"]


def test_requests_of_nobody_known_are_users_of_their_own() -> None:
    queue = FairQueue()
    for index in range(3):
        add(queue, f"a{index}", "ann", arrival_s=index)
    add(queue, "n0", None, arrival_s=3)
    add(queue, "n1", None, arrival_s=4)
    assert order(queue) == ["a0", "n0", "n1", "a1", "a2"]


def test_who_comes_back_from_idle_has_no_credit() -> None:
    queue = FairQueue()
    ann = add(queue, "a", "ann")
    queue.charge(ann, 50)
    bob = add(queue, "b", "bob")
    assert queue.service(bob) == 50


def test_who_leaves_and_returns_keeps_what_was_served() -> None:
    queue = FairQueue()
    add(queue, "a", "ann")
    bob = add(queue, "b", "bob")
    queue.charge(bob, 30)
    queue.take(bob)
    queue.leave(bob)
    assert queue.service(add(queue, "b2", "bob")) == 30


def test_idle_users_are_forgotten_when_nobody_is_left_to_compare_with() -> None:
    queue = FairQueue()
    bob = add(queue, "b", "bob")
    queue.charge(bob, 30)
    queue.take(bob)
    queue.leave(bob)
    assert queue.service(add(queue, "b2", "bob")) == 0


def test_a_preempted_request_goes_back_to_the_front() -> None:
    queue = FairQueue()
    first = add(queue, "a0", "ann", arrival_s=0)
    add(queue, "a1", "ann", arrival_s=1)
    queue.take(first)
    assert order(queue) == ["a1"]
    queue.put_back(first)
    assert order(queue) == ["a0", "a1"]
    assert len(queue) == 2
    queue.check_integrity({})


def test_a_running_user_is_active() -> None:
    queue = FairQueue()
    ann = add(queue, "a", "ann")
    queue.charge(ann, 20)
    queue.take(ann)
    queue.check_integrity({ANN: 1})
    assert queue.service(add(queue, "b", "bob")) == 20
