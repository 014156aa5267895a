from __future__ import annotations

from engine.process.hang_watch import HangWatch, LifeSign

SILENT = LifeSign(1, 7)


def test_work_without_messages_is_a_hang() -> None:
    watch = HangWatch(timeout_s=3.0)
    verdicts = [watch.is_hung(SILENT, has_work=True, now_s=float(s)) for s in range(6)]
    assert verdicts == [False, False, False, False, True, True]


def test_messages_and_a_new_process_are_signs_of_life() -> None:
    watch = HangWatch(timeout_s=3.0)
    for second in range(20):
        sign = LifeSign(1 + second // 4, second // 2)
        assert not watch.is_hung(sign, has_work=True, now_s=float(second))


def test_idleness_is_none_however_long() -> None:
    watch = HangWatch(timeout_s=3.0)
    for second in range(100):
        assert not watch.is_hung(SILENT, has_work=False, now_s=float(second))
    assert not watch.is_hung(SILENT, has_work=True, now_s=101.0)


def test_a_watcher_that_was_held_up_itself_starts_anew() -> None:
    watch = HangWatch(timeout_s=3.0)
    watch.is_hung(SILENT, has_work=True, now_s=0.0)
    assert not watch.is_hung(SILENT, has_work=True, now_s=500.0)
    assert not watch.is_hung(SILENT, has_work=True, now_s=502.0)
    assert watch.is_hung(SILENT, has_work=True, now_s=504.0)
