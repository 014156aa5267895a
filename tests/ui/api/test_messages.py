"""OpenAI messages -> ChatMessages."""

from __future__ import annotations

from typing import Any

import pytest

from engine import ChatMessage
from ui.api.errors import ApiError
from ui.api.messages import read_messages
from ui.api.schemas import Message

HI = {"role": "user", "content": "Hi"}


def read(*messages: dict[str, Any]) -> list[tuple[str, str]]:
    read_ones = read_messages([Message(**message) for message in messages])
    assert all(isinstance(message, ChatMessage) for message in read_ones)
    return [(message.role, message.content) for message in read_ones]


def refusal(*messages: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(*messages)
    assert caught.value.status == 400
    return caught.value


def test_roles_and_text_are_kept() -> None:
    chat = [{"role": "system", "content": "Be brief."}, HI, {"role": "assistant", "content": "Yo"}]
    assert read(*chat) == [("system", "Be brief."), ("user", "Hi"), ("assistant", "Yo")]


def test_a_developer_is_a_system() -> None:
    assert read({"role": "developer", "content": "Be brief."}, HI)[0] == ("system", "Be brief.")


def test_br_43_no_messages_are_refused() -> None:
    assert refusal().param == "messages"


def test_br_43_an_empty_system_message_is_none() -> None:
    assert read({"role": "system", "content": ""}, HI) == [("user", "Hi")]
    assert refusal({"role": "system", "content": ""}).param == "messages"


@pytest.mark.parametrize("text", ["", "   \n"])
def test_br_43_an_empty_question_is_a_question(text: str) -> None:
    assert read({"role": "user", "content": text}) == [("user", text)]


@pytest.mark.parametrize("role", ["user", "system"])
def test_br_43_a_message_without_content_is_refused(role: str) -> None:
    error = refusal({"role": role})
    assert (error.message, error.param) == (
        "messages[0].content is missing.",
        "messages[0].content",
    )


def test_br_45_text_parts_are_joined_to_one_string() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    for role in ("user", "system", "assistant"):
        assert read({"role": role, "content": parts}, HI)[0] == (role, "Hello")
    assert read({"role": "user", "content": []}) == [("user", "")]


def test_br_45_an_assistant_may_have_no_content() -> None:
    assert read(HI, {"role": "assistant", "content": None})[1] == ("assistant", "")


def test_br_45_an_image_is_not_supported() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    error = refusal(HI, {"role": "user", "content": [{"type": "text", "text": "What?"}, image]})
    assert error.param == "messages[1].content[1]"
    assert "not supported" in error.message


@pytest.mark.parametrize("content", [5, True, {"type": "text", "text": "Hi"}])
def test_br_45_content_of_another_type_is_refused(content: Any) -> None:
    assert refusal({"role": "user", "content": content}).param == "messages[0].content"


@pytest.mark.parametrize(
    "part", ["Hi", {"text": "Hi"}, {"type": "text"}, {"type": "text", "text": 5}]
)
def test_br_45_a_broken_part_is_refused(part: Any) -> None:
    error = refusal({"role": "user", "content": [part]})
    assert error.param is not None
    assert error.param.startswith("messages[0].content[0]")


def test_an_unknown_role_is_refused() -> None:
    error = refusal({"role": "tool", "content": "7"})
    assert error.param == "messages[0].role"
    assert error.message == (
        "messages[0].role must be one of system, developer, user, assistant, not 'tool'."
    )


def test_tool_calls_are_not_supported() -> None:
    error = refusal(HI, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]})
    assert error.param == "messages[1].tool_calls"
