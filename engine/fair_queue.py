"""Waiting requests, in an order that is fair between users. Knows no blocks and no budget."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Mapping

from engine.request import Request

UserKey = tuple[str | None, str]


def user_key(request: Request) -> UserKey:
    """Who is served. A request of nobody known counts as a user of its own."""
    return (request.user, "") if request.user is not None else (None, request.request_id)


class FairQueue:
    """First come, first served within a user; between users, least service received first.

    Service is a virtual counter per user, as in "Fairness in Serving Large Language Models". A user
    who comes back from idle is lifted to the least served active user: idling earns no credit.
    """

    def __init__(self) -> None:
        self._waiting: dict[UserKey, deque[Request]] = {}
        self._service: dict[UserKey, float] = {}
        self._num_active: Counter[UserKey] = Counter()  # waiting and running requests

    def __len__(self) -> int:
        return sum(len(requests) for requests in self._waiting.values())

    def __contains__(self, request: Request) -> bool:
        return request in self._waiting.get(user_key(request), ())

    def add(self, request: Request) -> None:
        """A new request joins the end of its user's queue."""
        user = user_key(request)
        if not self._num_active[user]:
            self._service[user] = max(self._service.get(user, 0.0), self._least_service())
        self._num_active[user] += 1
        self._waiting.setdefault(user, deque()).append(request)

    def put_back(self, request: Request) -> None:
        """A preempted request returns to the front of its user's queue."""
        self._waiting.setdefault(user_key(request), deque()).appendleft(request)

    def take(self, request: Request) -> None:
        """A waiting request starts, or ends before it could; its user stays active."""
        user = user_key(request)
        self._waiting[user].remove(request)
        if not self._waiting[user]:
            del self._waiting[user]

    def leave(self, request: Request) -> None:
        """A request that is not waiting any more has ended."""
        user = user_key(request)
        self._num_active[user] -= 1
        if not self._num_active[user]:
            del self._num_active[user]
            self._forget_idle_users()

    def charge(self, request: Request, service: float) -> None:
        self._service[user_key(request)] += service

    def service(self, request: Request) -> float:
        return self._service[user_key(request)]

    def order(self, num_running: Mapping[UserKey, int]) -> list[Request]:
        """Who gets the next slots: users without any first, then the least served.

        A request picked here counts as served when its user's next one is compared.
        """
        heap = [
            (num_running.get(user, 0) > 0, self._service[user], requests[0].arrival_s, index, user)
            for index, (user, requests) in enumerate(self._waiting.items())
        ]
        heapq.heapify(heap)
        rest = {user: iter(requests) for user, requests in self._waiting.items()}
        ordered: list[Request] = []
        while heap:
            _, service, _, index, user = heapq.heappop(heap)
            request = next(rest[user])
            ordered.append(request)
            following = next(rest[user], None)
            if following is not None:
                rest[user] = itertools.chain((following,), rest[user])
                served = service + request.num_tokens
                heapq.heappush(heap, (True, served, following.arrival_s, index, user))
        return ordered

    def check_integrity(self, num_running: Mapping[UserKey, int]) -> None:
        """Raises AssertionError with what is wrong."""
        for user, num_active in self._num_active.items():
            num_waiting = len(self._waiting.get(user, ()))
            assert num_active == num_waiting + num_running.get(user, 0), f"{user} miscounted"
            assert user in self._service, f"{user} has no service counter"
        for user in {*self._waiting, *num_running}:
            assert self._num_active[user] > 0, f"{user} has requests but is not active"

    def _least_service(self) -> float:
        active = (user for user, count in self._num_active.items() if count > 0)
        return min((self._service[user] for user in active), default=0.0)

    def _forget_idle_users(self) -> None:
        """Keep an idle user's counter only while it would still matter on return."""
        least = self._least_service() if self._num_active else math.inf
        for user in list(self._service):
            is_idle = not self._num_active[user]
            if is_idle and (user[0] is None or self._service[user] <= least):
                del self._service[user]
