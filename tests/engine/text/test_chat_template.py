from __future__ import annotations

import pytest

from engine.errors import InvalidParameterError
from engine.text.chat_template import ChatMessage, ChatTemplate, checked_messages
from engine.text.tokenizer import Tokenizers

USER = ChatMessage("user", "Hi")


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ([ChatMessage("system", " \n")], "messages"),
        ([USER, ChatMessage("tool", "x")], "messages[1].role"),
        ([ChatMessage("user|>", "x")], "messages[0].role"),
        ([USER, ChatMessage("user", "half \ud83d")], "messages[1].content"),
    ],
)
def test_br_43_wrong_messages_are_refused_by_name(messages: list[ChatMessage], field: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        checked_messages(messages)
    assert caught.value.field == field


@pytest.mark.parametrize("content", ["", "   \n"])
def test_br_43_an_empty_system_message_is_none(content: str) -> None:
    assert checked_messages([ChatMessage("system", content), USER]) == (USER,)


@pytest.mark.parametrize("content", ["", "   \n"])
def test_br_43_an_empty_user_message_is_an_empty_turn(bundled: Tokenizers, content: str) -> None:
    messages = checked_messages([ChatMessage("user", content)])
    text = ChatTemplate(bundled.main).render(messages, add_generation_prompt=True)
    assert text.endswith(f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n")


def test_the_template_s_default_system_message_stays(bundled: Tokenizers) -> None:
    text = ChatTemplate(bundled.main).render([USER], add_generation_prompt=False)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant")


def test_a_template_may_refuse_with_its_own_words(llama: Tokenizers) -> None:
    messages = [ChatMessage("system", "Be brief."), USER]
    with pytest.raises(InvalidParameterError) as caught:
        ChatTemplate(llama.main).render(messages, add_generation_prompt=True)
    assert str(caught.value) == (
        "The model's chat template refuses these messages: Only user and assistant roles."
    )


def test_a_model_without_a_template_says_so(
    bundled: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled.main, "chat_template", None)
    with pytest.raises(InvalidParameterError, match="no chat template"):
        ChatTemplate(bundled.main).render([USER], add_generation_prompt=True)
