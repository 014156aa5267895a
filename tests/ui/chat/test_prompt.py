from __future__ import annotations

from tests.path_factories import path_of
from ui.chat.conversation import ContextCut, Message, MessageState, Role
from ui.chat.prompt import prompt_messages, sent_part
from ui.chat.settings import ChatSettings


def prompt_of(path: tuple[Message, ...], system_prompt: str = "") -> list[tuple[str, str]]:
    messages = prompt_messages(sent_part(path), ChatSettings(system_prompt=system_prompt))
    return [(message.role, message.content) for message in messages]


def test_the_whole_path_is_sent_after_the_system_prompt() -> None:
    assert prompt_of(path_of("Hi", "Hello", "And?"), "Be brief.") == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "And?"),
    ]
    assert prompt_of(path_of("Hi"), "  \n") == [("user", "Hi")]


def test_an_answer_without_a_word_is_left_out_and_questions_in_a_row_become_one() -> None:
    assert prompt_of(path_of("Hi", "", "Are you there?")) == [("user", "Hi\n\nAre you there?")]


def test_what_stopped_or_failed_halfway_is_kept() -> None:
    question = path_of("Hi")[0]
    for state in (MessageState.STOPPED, MessageState.FAILED, MessageState.INTERRUPTED):
        answer = Message(
            message_id="a", parent_id="m0", role=Role.ASSISTANT, text="Half", state=state
        )
        assert prompt_of((question, answer)) == [("user", "Hi"), ("assistant", "Half")]


def test_br_68_a_cut_leaves_out_what_comes_before_it_and_never_the_system_prompt() -> None:
    path = path_of("1", "2", "3", "4", "5", cuts={4: ContextCut("m2", 2, "")})
    assert prompt_of(path, "Be brief.") == [
        ("system", "Be brief."),
        ("user", "3"),
        ("assistant", "4"),
        ("user", "5"),
    ]


def test_a_summary_joins_the_system_prompt_or_is_a_turn_of_its_own() -> None:
    path = path_of("1", "2", "3", cuts={2: ContextCut("m2", 2, "They counted.")})
    summary = "Summary of the conversation so far: They counted."
    assert prompt_of(path, "Be brief.") == [
        ("system", f"Be brief.\n\n{summary}"),
        ("user", "3"),
    ]
    without = prompt_of(path)
    assert [role for role, _ in without] == ["user", "assistant", "user"]
    assert without[0] == ("user", summary)
    assert without[2] == ("user", "3")


def test_the_newest_cut_counts_also_for_the_turns_after_it() -> None:
    cuts = {2: ContextCut("m2", 2, "old"), 4: ContextCut("m4", 4, "")}
    path = path_of("1", "2", "3", "4", "5", "6", "7", cuts=cuts)
    assert [text for _, text in prompt_of(path)] == ["5", "6", "7"]
    assert sent_part(path).num_left_out == 4


def test_a_cut_whose_first_message_was_deleted_leaves_nothing_out() -> None:
    path = path_of("1", "2", "3", cuts={2: ContextCut("gone", 2, "They counted.")})
    assert [text for _, text in prompt_of(path)] == ["1", "2", "3"]
