"""How far a download is: one sentence now and then, whatever the number of files and threads."""

from __future__ import annotations

from engine.model.download_meter import DownloadMeter
from tests.fake_runner import FakeClock

GB = 1_000_000_000


def test_a_sentence_at_most_twice_a_second() -> None:
    clock = FakeClock()
    said: list[str] = []
    bar = DownloadMeter("team/model", 7_640_000_000, said.append, clock).bar(unit="B")
    for _ in range(33):
        bar.update(GB // 10)
        clock.now_s += 0.125
    assert len(said) == 9
    assert said[0] == "Fetching team/model: 0.1 of 7.6 GB."
    assert said[-1] == "Fetching team/model: 3.3 of 7.6 GB."


def test_bytes_from_the_network_and_on_the_disk_are_not_added() -> None:
    clock = FakeClock()
    said: list[str] = []
    meter = DownloadMeter("m", 2 * GB, said.append, clock)
    network, disk, files = meter.bar(unit="B"), meter.bar(unit="B"), meter.bar(desc="files")
    network.update(GB)
    clock.now_s += 1
    disk.update(GB // 2)
    clock.now_s += 1
    files.update(10 * GB)
    clock.now_s += 1
    disk.update(-GB // 2)  # to be fetched once more
    clock.now_s += 1
    network.update(9 * GB)
    assert [sentence.split(": ")[1] for sentence in said] == [
        *["1.0 of 2.0 GB."] * 4,
        "2.0 of 2.0 GB.",
    ]


def test_nothing_to_fetch_is_nothing_to_say() -> None:
    said: list[str] = []
    with DownloadMeter("m", 0, said.append).bar(unit="B") as bar:
        bar.update(7)
    assert said == []
