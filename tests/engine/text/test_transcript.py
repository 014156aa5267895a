from __future__ import annotations

import threading
import zlib
from array import array

import pytest

from engine.text.transcript import (
    Transcript,
    TranscriptKey,
    TranscriptStore,
    pack_transcript,
    transcript_digest,
    unpack_transcript,
)


def key(text: str, owner: str = "ann") -> TranscriptKey:
    return TranscriptKey(owner, text.encode())


def test_ids_are_found_by_owner_and_text() -> None:
    store = TranscriptStore()
    store.put(key("a"), [1, 2])
    assert store.get(key("a")) == (1, 2)
    assert store.get(key("b")) is None


def test_nothing_crosses_owners() -> None:
    store = TranscriptStore()
    store.put(key("a", "ann"), [1])
    store.put(key("a", "bob"), [2])
    assert store.get(key("a", "ann")) == (1,)
    assert store.get(key("a", "bob")) == (2,)
    assert store.get(key("a", "eve")) is None


def test_the_least_recently_used_goes_first() -> None:
    store = TranscriptStore(max_token_ids=6)
    store.put(key("a"), [1, 1])
    store.put(key("b"), [2, 2])
    store.put(key("c"), [3, 3])
    store.get(key("a"))
    store.put(key("d"), [4, 4])
    assert [store.get(key(text)) for text in "abcd"] == [(1, 1), None, (3, 3), (4, 4)]


def test_a_new_value_takes_the_place_of_the_old_one() -> None:
    store = TranscriptStore(max_token_ids=3)
    store.put(key("a"), [1, 1])
    store.put(key("a"), [2])
    store.put(key("b"), [3, 3])
    assert store.get(key("a")) == (2,)
    assert store.get(key("b")) == (3, 3)


def test_what_can_never_fit_is_not_kept() -> None:
    store = TranscriptStore(max_token_ids=2)
    store.put(key("a"), [1])
    store.put(key("b"), [2, 2, 2])
    assert store.get(key("a")) == (1,)
    assert store.get(key("b")) is None


def test_threads_do_not_disturb_each_other() -> None:
    store = TranscriptStore(max_token_ids=50)

    def work(number: int) -> None:
        for index in range(500):
            store.put(key(str(index % 20), str(number)), [number] * 3)
            assert store.get(key(str(index % 20), str(number))) in {(number,) * 3, None}

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [store.get(key(str(i), str(n))) for i in range(20) for n in range(4)]
    assert len(kept) - kept.count(None) == 16


def unpacked(token_ids: bytes, max_tokens: int = 10) -> tuple[int, ...] | None:
    return unpack_transcript(Transcript(b"", token_ids), max_tokens=max_tokens, vocab_size=50_000)


def packed(*token_ids: int) -> bytes:
    return pack_transcript(b"", token_ids).token_ids


def test_a_digest_depends_on_tokenizer_and_text() -> None:
    digests = {transcript_digest(t, x) for t in (b"t" * 32, b"u" * 32) for x in ("", "a", "\0é")}
    assert {len(digest) for digest in digests} == {32}
    assert len(digests) == 6


def test_what_was_packed_is_unpacked() -> None:
    token_ids = (1, 0, 49_999, 300)
    assert unpacked(packed(*token_ids)) == token_ids
    assert zlib.decompress(packed(1, 300)) == b"\x01\0\0\0\x2c\x01\0\0"
    assert unpacked(packed(*range(10))) == tuple(range(10))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"not zlib",
        packed(1, 2)[:-1],
        packed(1, 2)[:-4] + b"\0\0\0\0",
        packed(1, 2) + b"x",
        zlib.compress(b""),
        zlib.compress(b"\1\0\0"),
        packed(50_000),
        packed(-1),
        packed(*range(11)),
    ],
)
def test_what_is_damaged_foreign_or_too_long_is_nothing(damaged: bytes) -> None:
    assert unpacked(damaged) is None


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(array("i", [7]) * 20_000_000)
    assert len(bomb) < 200_000
    assert unpacked(bomb, max_tokens=100_000) is None
