"""The callers' side of any engine: admission, streams, the newest readings. Thread-safe."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from engine.admission import Admission
from engine.config import EngineConfig, ModelInfo
from engine.engine import EngineState, EngineStatus
from engine.errors import EngineDeadError, EngineNotReadyError
from engine.loop_news import LoopNews, Reading
from engine.request import (
    FinishReason,
    GenerationRequest,
    Request,
    RequestOutput,
    RequestProgress,
    RequestStatus,
)
from engine.stats import EngineStats
from engine.stream import OutputStream

_NOT_LOADED = "The model is still loading: try again shortly."


class Opened(NamedTuple):
    request: Request
    stream: OutputStream


class FrontDesk:
    """Opens streams and hands out what the loop delivers; knows neither loop nor process.

    Args:
        abort: ends a request by its id. It is called for a stream that nobody holds any more, at
            any point of any thread's work, and so must not wait for a lock.
    """

    def __init__(
        self, config: EngineConfig, *, abort: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self.status = EngineStatus(EngineState.LOADING, "The model is about to be loaded.")
        self._config = config
        self._abort = abort
        self._clock = clock
        self._lock = threading.Lock()
        self._is_closed = False
        self._info: ModelInfo | None = None
        self._admission: Admission | None = None
        self._streams: dict[str, weakref.ref[OutputStream]] = {}
        self._reading: Reading | None = None
        self._num_ended = Counter({reason.value: 0 for reason in FinishReason})

    @property
    def has_work(self) -> bool:
        return bool(self._streams)

    def model_info(self) -> ModelInfo:
        """Raises EngineNotReadyError while loading, EngineDeadError after a failure or stop."""
        if self.status.state in {EngineState.FAILED, EngineState.STOPPED}:
            raise EngineDeadError(self.status.message)
        if self._info is None:
            raise EngineNotReadyError(_NOT_LOADED)
        return self._info

    def stats(self) -> EngineStats | None:
        """The newest reading; what callers did is counted here, and never falls."""
        reading, admission = self._reading, self._admission
        if reading is None or admission is None:
            return None
        return replace(
            reading.stats,
            num_requests_total=admission.num_admitted,
            num_requests_refused_total=admission.num_refused,
            num_requests_finished_total=dict(self._num_ended),
        )

    # --- callers' threads

    def open(self, request: GenerationRequest) -> Opened:
        """Check a request and give it a stream; see Engine.submit for what is raised."""
        admission = self._open_admission()
        admitted = admission.admit(request, self._clock())
        request_id = request.request_id
        read_progress = partial(self._progress_of, request_id, admitted.num_prompt_tokens)
        stream = OutputStream(request_id, abort=self._abort, read_progress=read_progress)
        with self._lock:
            if self._is_closed:
                admission.ended(request_id)
                raise EngineDeadError(self.status.message)
            self._streams[request_id] = weakref.ref(stream, lambda _: self._abort(request_id))
        return Opened(admitted, stream)

    def withdraw(self, request_id: str) -> None:
        """A request that was opened cannot be sent; its stream is not used."""
        with self._lock:
            self._streams.pop(request_id, None)
        self._open_admission().ended(request_id)

    # --- the threads that have the loop's news

    def ready(self, info: ModelInfo, status: EngineStatus) -> None:
        """The model is loaded, for the first time or again."""
        if self._admission is None:
            max_pool_tokens = info.num_blocks * info.block_size
            self._admission = Admission(self._config, info, max_pool_tokens)
        self._info = info
        self.status = status

    def deliver(self, news: LoopNews) -> None:
        """Readings first: who sees an end finds the figures that belong to it."""
        if self._admission is not None:
            for request_id in news.started:
                self._admission.started(request_id, news.time_s)
        self._count_ends(news.outputs)
        if news.reading is not None:
            self._reading = news.reading
        for output in news.outputs:
            self._hand_out(output)

    def show(self, stats: EngineStats) -> None:
        """A reading while there is no loop that could give one."""
        self._reading = Reading(stats, {})

    def end(self, request_id: str, reason: FinishReason, error: str | None = None) -> None:
        """End a request about which the loop has nothing more to say."""
        output = RequestOutput(
            request_id=request_id, finish_reason=reason, error=error, num_accepted_tokens=0
        )
        self.deliver(LoopNews(self._clock(), (output,)))

    def begin_anew(self, request_id: str) -> bool:
        """Whether a request can be run again without its reader noticing; it is prepared for it."""
        stream = self._stream_of(request_id)
        return stream is not None and stream.begin_anew()

    def close(self, status: EngineStatus, reason: FinishReason) -> None:
        """Take no more requests, and end all that are still there."""
        with self._lock:
            self._is_closed = True
            self.status = status
            request_ids = list(self._streams)
        for request_id in request_ids:
            self.end(request_id, reason, status.message if reason is FinishReason.ERROR else None)

    # --- parts of the above

    def _open_admission(self) -> Admission:
        self.model_info()
        if self._admission is None:
            raise EngineNotReadyError(_NOT_LOADED)
        return self._admission

    def _count_ends(self, outputs: Iterable[RequestOutput]) -> None:
        with self._lock:
            for output in outputs:
                if output.finish_reason is not None and output.request_id in self._streams:
                    self._num_ended[output.finish_reason.value] += 1

    def _hand_out(self, output: RequestOutput) -> None:
        stream = self._stream_of(output.request_id)
        if output.finish_reason is not None:
            with self._lock:
                self._streams.pop(output.request_id, None)
            if self._admission is not None:
                self._admission.ended(output.request_id)
        if stream is not None:
            stream.put(output)

    def _stream_of(self, request_id: str) -> OutputStream | None:
        reference = self._streams.get(request_id)
        return None if reference is None else reference()

    def _progress_of(self, request_id: str, num_prompt_tokens: int) -> RequestProgress:
        reading, admission = self._reading, self._admission
        progress = reading.progress.get(request_id) if reading is not None else None
        if progress is None:
            return RequestProgress(RequestStatus.WAITING, None, 0, num_prompt_tokens)
        if progress.queue_position is None or admission is None:
            return progress
        expected_wait_s = admission.expected_wait_s(progress.queue_position, self._clock())
        return progress._replace(expected_wait_s=expected_wait_s)
