"""The database from the event loop: its calls run in threads, writes one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from ui.chat.conversation import ChatError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_NUM_READERS = 4
_NUM_SCANNERS = 2
_log = logging.getLogger(__name__)


class StorageError(ChatError):
    """The database cannot be used just now: it is locked, full or broken."""

    code = "storage"


class StoppingError(ChatError):
    """The server is on its way down."""

    code = "stopping"

    def __init__(self) -> None:
        super().__init__("The server is stopping: send this again when it is back.")


class StorageThreads:
    """One thread writes, in the order of asking; a few read beside it.

    All methods raise ChatError as the store does, and StorageError where the database fails; the
    log has the details then.
    """

    def __init__(self) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="hearth-db-write")
        self._readers = ThreadPoolExecutor(_NUM_READERS, thread_name_prefix="hearth-db-read")
        self._scanners = ThreadPoolExecutor(_NUM_SCANNERS, thread_name_prefix="hearth-db-scan")
        self._is_closed = False

    async def read(
        self,
        call: Callable[_Parameters, _Result],
        *arguments: _Parameters.args,
        **options: _Parameters.kwargs,
    ) -> _Result:
        return await self._run(self._readers, partial(call, *arguments, **options))

    async def scan(
        self,
        call: Callable[_Parameters, _Result],
        *arguments: _Parameters.args,
        **options: _Parameters.kwargs,
    ) -> _Result:
        """A call that may take long: a few at a time, and what is read meanwhile does not wait."""
        return await self._run(self._scanners, partial(call, *arguments, **options))

    async def write(
        self,
        call: Callable[_Parameters, _Result],
        *arguments: _Parameters.args,
        **options: _Parameters.kwargs,
    ) -> _Result:
        return await self._run(self._writer, partial(call, *arguments, **options))

    async def close(self) -> None:
        """Return when everything to be written is; what waits to be read is given up."""
        self._is_closed = True
        self._scanners.shutdown(wait=False)
        await asyncio.to_thread(self._writer.shutdown)
        await asyncio.to_thread(self._readers.shutdown)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], _Result]) -> _Result:
        def work_unless_closed() -> _Result:
            if self._is_closed and pool is not self._writer:
                raise StoppingError
            return work()

        if self._is_closed:
            raise StoppingError
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work_unless_closed)
        except (ChatError, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("The database failed.")
            raise StorageError(
                "The server could not use its database: its disk may be full. Your text is not "
                "lost, try again; the server's log says more."
            ) from error
