from __future__ import annotations

import threading

from engine.text.transcript import TranscriptKey, TranscriptStore


def key(text: str, owner: str = "ann") -> TranscriptKey:
    return TranscriptKey(owner, text)


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
