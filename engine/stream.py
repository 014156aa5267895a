"""One request's outputs on their way from the engine's thread to one reader."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from engine.request import RequestOutput, RequestProgress, RequestStatus

_MAX_PENDING = 64


class OutputStream:
    """A mailbox with one reader, sync or async; implements RequestStream.

    The reader gets nothing before there is text (or the end): until then the answer can be begun
    anew without anybody noticing, see `begin_anew`.

    `put` never waits. Outputs that are not read in time are joined into one, so a reader that stops
    reading costs no more memory than the reply's own text.
    """

    def __init__(
        self,
        request_id: str,
        *,
        abort: Callable[[str], None],
        read_progress: Callable[[], RequestProgress],
    ) -> None:
        self.request_id = request_id
        self._abort = abort
        self._read_progress = read_progress
        self._changed = threading.Condition()
        self._pending: list[RequestOutput] = []
        self._is_readable = False  # something pending is worth waking the reader for
        self._is_begun = False  # the reader was given something
        self._is_complete = False  # the last output was put
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    @property
    def progress(self) -> RequestProgress:
        progress = self._read_progress()
        return progress._replace(status=RequestStatus.FINISHED) if self._is_complete else progress

    def put(self, output: RequestOutput) -> None:
        """Called by the engine's thread."""
        with self._changed:
            if self._is_complete:
                return
            self._pending.append(output)
            if len(self._pending) > _MAX_PENDING:
                self._pending = [_joined(self._pending)]
            self._is_complete = output.finish_reason is not None
            if not (self._is_begun or output.text or self._is_complete):
                return
            self._is_readable = True
            self._changed.notify_all()
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            loop, future = waiter
            with suppress(RuntimeError):  # the reader's event loop is closed: nobody reads
                loop.call_soon_threadsafe(_resolve, future)

    def begin_anew(self) -> bool:
        """Forget what was put, as if nothing had been; False if the reader has some of it."""
        with self._changed:
            if self._is_begun or self._is_complete:
                return False
            self._pending.clear()
            self._is_readable = False
            return True

    def close(self) -> None:
        """Abort if it still runs; does nothing after the end. May be called from any thread."""
        if not self._is_complete:
            self._abort(self.request_id)

    def __iter__(self) -> Iterator[RequestOutput]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_readable or self._is_complete)
                output = self._take()
            if output is None:
                return
            yield output

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        while True:
            with self._changed:
                output = self._take()
                is_over = output is None and self._is_complete
                future = None if output or is_over else self._wait_for_output()
            if future is not None:
                await future
            elif output is not None:
                yield output
            else:
                return

    def _take(self) -> RequestOutput | None:
        """Everything that is pending, as one output; the lock is held."""
        if not self._is_readable:
            return None
        pending, self._pending = self._pending, []
        self._is_readable, self._is_begun = False, True
        return _joined(pending)

    def _wait_for_output(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiter = (loop, future)
        return future


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # the reader may have been cancelled
        future.set_result(None)


def _joined(outputs: list[RequestOutput]) -> RequestOutput:
    """One output that says what several said, in order."""
    if len(outputs) == 1:
        return outputs[0]
    return replace(
        outputs[-1],
        text="".join(output.text for output in outputs),
        token_ids=tuple(token_id for output in outputs for token_id in output.token_ids),
        logprobs=tuple(entry for output in outputs for entry in output.logprobs),
    )
