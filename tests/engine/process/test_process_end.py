from __future__ import annotations

import pytest

from engine.process.process_end import ProcessEnd


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (-9, "signal 9, SIGKILL"),
        (-11, "signal 11, SIGSEGV"),
        (-120, "signal 120"),
        (3, "exit code 3"),
        (None, "exit code None"),
    ],
)
def test_the_exit_code_in_words(exit_code: int | None, words: str) -> None:
    assert ProcessEnd(exit_code=exit_code).exit_in_words() == words


def test_a_first_load_that_failed_is_told_as_it_is() -> None:
    assert ProcessEnd(0, load_failure="No such model.").load_message() == "No such model."
    assert ProcessEnd(0, what_died="The engine broke").load_message() == "The engine broke."
    assert "(signal 9, SIGKILL): the machine may be short" in ProcessEnd(-9).load_message()


def test_what_happened_begins_the_sentence() -> None:
    assert ProcessEnd(-9).restarting_message().startswith("The engine stopped unexpectedly and is")
    hung = ProcessEnd(-9, was_hung=True)
    assert hung.restarting_message().startswith("The engine did not respond any more and is")
    assert hung.giving_up_message().endswith("Restart Hearth. The engine did not respond any more.")
