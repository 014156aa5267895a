"""Every message there and back, with random contents from a fixed seed."""

from __future__ import annotations

import random
import string
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from engine.errors import InvalidParameterError
from engine.loop_news import LoopNews, Reading
from engine.process.messages import (
    AbortRequest,
    Command,
    Died,
    Event,
    ForgetConversations,
    LoadFailed,
    Loading,
    News,
    Ready,
    StopServing,
    SubmitRequest,
    encode_request,
    make_codec,
    readable,
)
from engine.request import (
    FinishReason,
    RequestOutput,
    RequestProgress,
    RequestStatus,
    RequestTimings,
    RequestTrace,
    TokenLogprob,
    TokenLogprobs,
    Usage,
)
from engine.sampling_params import SamplingParams
from engine.stats import EngineStats, HistogramSnapshot, Percentiles
from tests.engine_factories import make_request
from tests.factories import make_engine_stats, make_model_info

CHARACTERS = string.printable + "äß€日本語🙂\0\u200d"


class Source(random.Random):
    """Random values of the messages' types."""

    def text(self) -> str:
        return "".join(self.choices(CHARACTERS, k=self.randrange(20)))

    def ids(self, most: int = 30) -> tuple[int, ...]:
        return tuple(self.randrange(200_000) for _ in range(self.randrange(most)))

    def maybe(self, value: Any) -> Any:
        return self.choice([None, value])

    def seconds(self) -> float:
        return self.choice([0.0, self.random() * 1e-6, self.random() * 1e6])

    def sampling(self) -> SamplingParams:
        return SamplingParams(
            max_tokens=self.maybe(self.randrange(1, 1 << 40)),
            temperature=self.choice([0, 1, self.random() * 2]),
            top_k=self.randrange(-1, 100),
            top_p=self.random() or 1.0,
            seed=self.maybe(self.randrange(-(1 << 63), 1 << 63)),
            stop=tuple(self.text() + "." for _ in range(self.randrange(4))),
            stop_token_ids=self.ids(5),
            ignore_eos=self.choice([True, False]),
            logit_bias=MappingProxyType({token_id: self.random() for token_id in self.ids(9)}),
            logprobs=self.maybe(self.randrange(20)),
        )

    def output(self) -> RequestOutput:
        logprob = TokenLogprob(self.randrange(1000), -self.random() * 50)
        return RequestOutput(
            request_id=self.text(),
            text=self.text(),
            token_ids=self.ids(),
            logprobs=(TokenLogprobs(logprob, (logprob,) * self.randrange(3)),) * self.randrange(3),
            finish_reason=self.maybe(self.choice(list(FinishReason))),
            stop_reason=self.choice([None, self.text(), self.randrange(1000)]),
            error=self.maybe(self.text()),
            num_accepted_tokens=self.maybe(self.randrange(1000)),
            usage=self.maybe(Usage(self.randrange(10), self.randrange(10), self.randrange(10))),
            timings=self.maybe(RequestTimings(self.seconds(), None, None, self.seconds(), None)),
            trace=self.maybe(RequestTrace(1, 2, 3, 4, 5, self.maybe(self.seconds()), 6)),
        )

    def stats(self) -> EngineStats:
        counts = {
            field.name: self.randrange(1 << 40)
            for field in fields(EngineStats)
            if field.type == "int"
        }
        return make_engine_stats(
            **counts,
            time_s=self.seconds(),
            last_step_s=self.maybe(self.seconds()),
            ttft=self.maybe(Percentiles(self.seconds(), self.seconds(), self.seconds())),
            num_requests_finished_total={"stop": self.randrange(9)},
            histograms={self.text(): HistogramSnapshot((0.5, 1.0), (1, 2), 3, self.seconds())},
        )

    def news(self) -> LoopNews:
        progress = {
            self.text(): RequestProgress(
                self.choice(list(RequestStatus)), self.maybe(3), self.randrange(9), 9, self.maybe(2)
            )
            for _ in range(self.randrange(4))
        }
        return LoopNews(
            self.seconds(),
            tuple(self.output() for _ in range(self.randrange(5))),
            tuple(self.text() for _ in range(self.randrange(5))),
            self.maybe(Reading(self.stats(), progress)),
        )

    def command(self) -> Command:
        submit = SubmitRequest(
            request_id=self.text(),
            prompt_token_ids=self.ids(),
            sampling=self.sampling(),
            max_tokens=self.randrange(1, 1000),
            user=self.maybe(self.text()),
            cache_salt=self.text(),
            arrival_s=self.seconds(),
            deadline_s=self.maybe(self.seconds()),
            conversation=self.text(),
        )
        forget = ForgetConversations((self.text(), self.text()))
        return self.choice([submit, submit, AbortRequest(self.text()), forget, StopServing()])

    def event(self) -> Event:
        info = make_model_info(
            eos_token_ids=frozenset(self.ids(4)),
            generation_defaults=MappingProxyType({"top_k": 40, "top_p": self.random()}),
        )
        return self.choice(
            [
                News(self.news()),
                News(self.news()),
                Ready(info),
                Loading(self.text()),
                LoadFailed(self.text()),
                Died(self.text()),
            ]
        )


def test_commands_arrive_as_they_were_sent() -> None:
    source, codec, seen = Source(20261202), make_codec(), set()
    for _ in range(300):
        command = source.command()
        seen.add(type(command))
        assert codec.command(codec.encode(command)) == command
    assert len(seen) == 4


def test_events_arrive_as_they_were_sent() -> None:
    source, codec, seen = Source(20261203), make_codec(), set()
    for _ in range(300):
        event = source.event()
        seen.add(type(event))
        assert codec.event(codec.encode(event)) == event
    assert len(seen) == 5


def test_whole_numbers_stay_whole() -> None:
    """top_k 40 must not come back as 40.0, which no request may have."""
    codec = make_codec()
    event = Ready(make_model_info(generation_defaults={"top_k": 40, "temperature": 0.6}))
    decoded = codec.event(codec.encode(event))
    assert isinstance(decoded, Ready)
    assert isinstance(decoded.info.generation_defaults["top_k"], int)


def test_an_admitted_request_arrives_whole() -> None:
    values = {"user": "ann", "cache_salt": "s", "conversation": "c", "arrival_s": 3.5}
    request = make_request("r", range(50), max_tokens=7, **values)  # type: ignore[arg-type]
    command = make_codec().command(encode_request(request))
    assert isinstance(command, SubmitRequest)
    arrived = command.request()
    names = ("request_id", "prompt_token_ids", "sampling", "max_tokens", "user", "cache_salt")
    for name in (*names, "conversation"):
        assert getattr(arrived, name) == getattr(request, name)
    assert (arrived.arrival_s, arrived.deadline_s) == (3.5, None)


def test_what_would_not_arrive_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidParameterError, match="stop"):
        encode_request(make_request("r", range(5), stop="ab"))


def test_a_step_of_sixteen_is_a_small_message() -> None:
    usage = Usage(100, 0, 20)
    outputs = tuple(
        RequestOutput(
            request_id=f"chat-{index:032x}", text=" word", token_ids=(index,), usage=usage
        )
        for index in range(16)
    )
    assert len(make_codec().encode(News(LoopNews(1.0, outputs)))) < 16 * 256


@pytest.mark.parametrize("encoded", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x92\xa7Loading\x05"])
def test_what_is_no_message_is_refused(encoded: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        make_codec().event(encoded)


def test_a_file_name_that_is_no_text_can_be_told() -> None:
    message = readable("There is no model at /mnt/\udcff.")
    codec = make_codec()
    assert codec.event(codec.encode(LoadFailed(message))) == LoadFailed(message)
