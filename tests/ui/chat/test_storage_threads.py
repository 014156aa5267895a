"""Calls of the database that wait for each other, and those that do not."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ui.chat.storage_threads import StoppingError, StorageThreads


def test_scans_do_not_keep_others_from_reading() -> None:
    async def scenario() -> None:
        threads = StorageThreads()
        go_on = threading.Event()
        scans = [asyncio.create_task(threads.scan(go_on.wait, 20)) for _ in range(8)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            assert await threads.read(lambda: "read") == "read"
            assert await threads.write(lambda: "written") == "written"
        assert not any(scan.done() for scan in scans)
        go_on.set()
        assert all(await asyncio.gather(*scans))
        await threads.close()

    asyncio.run(scenario())


def test_the_end_waits_for_what_is_written_and_for_no_scan() -> None:
    async def scenario() -> None:
        threads = StorageThreads()
        go_on = threading.Event()
        scans = [asyncio.create_task(threads.scan(go_on.wait, 20)) for _ in range(8)]
        writes = [asyncio.create_task(threads.write(time.sleep, 0.02)) for _ in range(5)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await threads.close()
        assert all(write.done() and write.exception() is None for write in writes)
        go_on.set()
        ends = await asyncio.gather(*scans, return_exceptions=True)
        assert [end is True for end in ends] == [True] * 2 + [False] * 6
        assert {type(end) for end in ends[2:]} == {StoppingError}
        for call in (threads.read, threads.scan, threads.write):
            with pytest.raises(StoppingError):
                await call(str)

    asyncio.run(scenario())
