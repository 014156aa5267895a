"""Keeps a process with an engine running: starts it, listens to it, and starts it again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.block_keeper import KEEP_LIMIT_S
from engine.config import EngineConfig, ModelInfo
from engine.engine import EngineState, EngineStatus
from engine.front_desk import FrontDesk
from engine.loop_news import LoopNews
from engine.process.engine_process import EngineProcess
from engine.process.hang_watch import HangWatch, LifeSign
from engine.process.kept_requests import KeptRequest, KeptRequests
from engine.process.lifetime_totals import LifetimeTotals
from engine.process.messages import Died, Event, LoadFailed, Loading, News, Ready
from engine.process.process_end import ProcessEnd
from engine.process.restart_policy import RestartPolicy
from engine.process.sender import Sender
from engine.request import FinishReason

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel

logger = logging.getLogger(__name__)

_STOP_GRACE_S = 2.0  # for the step that runs, and the ends of all requests
_LOAD_FACTOR = 3
_MAX_STARTS = 2  # processes that may end while they work on one request
_STOPPED = EngineStatus(EngineState.STOPPED, "The engine has been stopped.")
_CUT = (
    "The engine was restarted while this answer was written. What was written is kept; "
    "press Continue to go on."
)
_SUSPECT = (
    "The engine stopped twice while it worked on this request, which is not tried again: "
    "change the request."
)
_EXPIRED = "The time limit of this request was over before the engine was back. Please try again."
_OTHER_MODEL = "The model's files have changed while Hearth was running: restart Hearth."


class Supervisor:
    """One thread listens to the process, one watches the clock, and the sender has its own.

    Listening may wait for the rest of a message of a process that hangs: hence the second one.
    """

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[EngineConfig, Callable[[str], None]], LoadedModel],
        desk: FrontDesk,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._load = load
        self._desk = desk
        self._clock = clock
        self._kept = KeptRequests()
        self._sender = Sender(self._kept, self._end_request)
        self._totals = LifetimeTotals()
        self._policy = RestartPolicy()
        self._lock = threading.Lock()  # over which process there is, and whether to stop
        self._process: EngineProcess | None = None
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._num_starts = 0
        self._started_s = 0.0  # of the present process
        self._first_load_s = 0.0
        self._info: ModelInfo | None = None
        self._has_served = False  # the present process
        self._end = ProcessEnd()  # of the present process
        self._threads = [
            threading.Thread(target=self._run, name="hearth-engine", daemon=True),
            threading.Thread(target=self._watch, name="hearth-engine-watch", daemon=True),
        ]

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        self._sender.start()
        for thread in self._threads:
            thread.start()

    def submit(self, request: KeptRequest) -> None:
        self._kept.add(request)
        self._sender.submit(request.request_id)

    def abort(self, request_id: str) -> None:
        """Takes no lock."""
        self._sender.abort(request_id)

    def forget(self, conversations: Sequence[str]) -> None:
        self._sender.forget(conversations)

    def stop(self) -> None:
        """End all requests and the process, by force where it does not end by itself."""
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None:
            if self._desk.status.state is EngineState.READY:
                self._sender.stop_serving()
                self._over.wait(_STOP_GRACE_S + self._keep_limit_s())
            process.kill()
        if self._threads[0].ident is None:
            self._desk.close(_STOPPED, FinishReason.ABORT)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._sender.close()

    def _keep_limit_s(self) -> float:
        """What a stop may take longer, to keep warm blocks on disk."""
        return 0.0 if self._config.disk_cache is None else KEEP_LIMIT_S

    # --- the thread that listens

    def _run(self) -> None:
        try:
            self._supervise()
        except Exception:
            logger.exception("The engine's supervisor ended")
            status = EngineStatus(EngineState.FAILED, "The engine failed. Please restart Hearth.")
            self._desk.close(status, FinishReason.ERROR)
        finally:
            if self._process is not None:
                self._process.kill()
            self._over.set()

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            process = self._start_process()
            if process is not None:
                self._listen(process)
            if self._stopping.is_set():
                break
            failure = self._recover()
            if failure is not None:
                status = EngineStatus(EngineState.FAILED, failure, self._num_starts - 1)
                self._desk.close(status, FinishReason.ERROR)
                return
        self._desk.close(_STOPPED, FinishReason.ABORT)

    def _start_process(self) -> EngineProcess | None:
        """None if it cannot be had, or is not wanted any more."""
        self._end, self._has_served = ProcessEnd(), False
        with self._lock:
            if self._stopping.is_set():
                return None
            self._num_starts += 1
            self._started_s = self._clock()
            process = EngineProcess(self._num_starts, self._config_for_start(), self._load)
            try:
                process.start()
            except OSError as error:
                logger.exception("The engine's process cannot be started")
                self._end.load_failure = f"The engine's process cannot be started: {error}."
                return None
            self._process = process
            return process

    def _config_for_start(self) -> EngineConfig:
        """A later process gets the same pool as the first: what was admitted still fits."""
        if self._info is None:
            return self._config
        return replace(
            self._config,
            num_gpu_blocks_override=self._info.num_blocks,
            max_model_len=self._info.max_model_len,
        )

    def _listen(self, process: EngineProcess) -> None:
        """Until its last message."""
        while (event := process.receive()) is not None:
            self._take(process, event)
        with self._lock:
            self._process = None
        self._sender.attach(None)
        self._end.exit_code = process.close()

    def _take(self, process: EngineProcess, event: Event) -> None:
        if isinstance(event, News):
            self._deliver(event.news)
        elif isinstance(event, Loading):
            if self._info is None:
                self._desk.status = EngineStatus(EngineState.LOADING, event.message)
        elif isinstance(event, Ready):
            self._take_ready(process, event.info)
        elif isinstance(event, LoadFailed):
            self._end.load_failure = event.message
        elif isinstance(event, Died):
            self._end.what_died = event.what

    def _deliver(self, news: LoopNews) -> None:
        self._has_served |= bool(news.outputs)
        if news.reading is not None:
            stats = self._totals.add(news.reading.stats)
            news = news._replace(reading=news.reading._replace(stats=stats))
        self._kept.note(news)
        self._desk.deliver(news)

    def _take_ready(self, process: EngineProcess, info: ModelInfo) -> None:
        if self._info is not None and self._info.fingerprint != info.fingerprint:
            self._end.load_failure = _OTHER_MODEL
            process.kill()
            return
        if self._info is None:
            self._first_load_s = self._clock() - self._started_s
        self._info = info
        num_restarts = self._num_starts - 1
        status = EngineStatus(EngineState.READY, "The model is ready.", num_restarts)
        self._desk.ready(info, status)
        self._sender.attach(process)

    # --- after the end of a process

    def _recover(self) -> str | None:
        """Prepare for the next process and wait until its time; or the reason to give up."""
        end = self._end
        if self._info is None:
            return end.load_message()
        delay_s = self._policy.delay_s(self._clock(), has_served=self._has_served)
        if end.load_failure == _OTHER_MODEL:
            return _OTHER_MODEL
        if delay_s is None:
            return end.giving_up_message()
        logger.error("%s (%s); it starts again in %g s", end.what, end.exit_in_words(), delay_s)
        self._desk.status = EngineStatus(
            EngineState.RESTARTING, end.restarting_message(), self._num_starts
        )
        for request in self._kept.all():
            self._settle(request)
        stats = self._totals.process_ended(self._clock(), num_waiting=len(self._kept))
        if stats is not None:
            self._desk.show(stats)
        self._stopping.wait(delay_s)
        return None

    def _settle(self, request: KeptRequest) -> None:
        """End what cannot be run again; the rest stays in `kept`."""
        if request.is_aborted:
            self._end_request(request.request_id, FinishReason.ABORT)
        elif not self._desk.begin_anew(request.request_id):
            self._end_request(request.request_id, FinishReason.ERROR, _CUT)
        elif request.num_starts >= _MAX_STARTS:
            self._end_request(request.request_id, FinishReason.ERROR, _SUSPECT)

    def _end_request(self, request_id: str, reason: FinishReason, error: str | None = None) -> None:
        if self._kept.remove(request_id):
            self._desk.end(request_id, reason, error)

    # --- the thread that watches the clock

    def _watch(self) -> None:
        timeout_s = self._config.engine_hang_timeout_s
        watch = HangWatch(timeout_s)
        while not self._over.wait(min(1.0, timeout_s / 4)):
            process = self._process
            is_ready = self._desk.status.state is EngineState.READY
            if process is None or not is_ready:
                self._end_expired()
                if process is not None and self._loads_too_long(timeout_s):
                    logger.error("The engine's process does not become ready: it is ended")
                    self._end.was_hung = True
                    process.kill()
                continue
            sign = LifeSign(process.number, process.num_received)
            if watch.is_hung(sign, has_work=len(self._kept) > 0, now_s=self._clock()):
                logger.error("No sign of life of the engine in %g s: it is ended", timeout_s)
                self._end.was_hung = True
                process.kill()

    def _loads_too_long(self, timeout_s: float) -> bool:
        """A first load may download for hours; a later one takes about as long as the first."""
        limit_s = max(timeout_s, _LOAD_FACTOR * self._first_load_s)
        return self._info is not None and self._clock() - self._started_s > limit_s

    def _end_expired(self) -> None:
        """While a process serves, it does this itself."""
        now_s = self._clock()
        for request in self._kept.all():
            if request.deadline_s is not None and now_s >= request.deadline_s:
                self._end_request(request.request_id, FinishReason.ERROR, _EXPIRED)
