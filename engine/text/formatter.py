"""From a conversation to the ids of its prompt, and from an answer to the next turn's ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.errors import ContextLengthError, InvalidParameterError
from engine.text.chat_template import ChatMessage, ChatTemplate, checked_messages
from engine.text.encoder import PromptEncoder
from engine.text.literals import ControlLiterals
from engine.text.token_bytes import TokenBytes
from engine.text.token_decoder import decode_text
from engine.text.tokenizer import Tokenizers, tokenizer_identity
from engine.text.transcript import (
    Transcript,
    TranscriptKey,
    TranscriptStore,
    pack_transcript,
    transcript_digest,
    unpack_transcript,
)

_MAX_REPLIES_LOOKED_UP = 8
_MAX_UNSHOWN_TOKENS = 64


class ChatPrompt(NamedTuple):
    text: str  # rendered; control tokens that people typed are placeholders
    token_ids: tuple[int, ...]
    num_transcript_tokens: int  # of token_ids, those taken from a stored transcript
    is_continued: bool  # ends inside a reply, not before one


class _StoredPart(NamedTuple):
    token_ids: tuple[int, ...]
    rest: str


class _SplitReply(NamedTuple):
    token_ids: list[int]
    rest: str


class ChatFormatter:
    """Builds prompts for one model. Safe from any thread.

    Ordinary text gives the ids of `apply_chat_template`, except where an owner's earlier reply
    comes back unchanged: it keeps the ids it was generated with.
    """

    def __init__(self, tokenizers: Tokenizers, *, max_model_len: int) -> None:
        self._tokenizer = tokenizers.main
        self._template = ChatTemplate(tokenizers.main)
        self._literals = ControlLiterals(tokenizers.control_tokens)
        self._encoder = PromptEncoder(tokenizers, self._literals)
        self._special_ids = {
            token.token_id for token in tokenizers.control_tokens if token.is_special
        }
        self._identity = tokenizer_identity(tokenizers)
        self._vocab_size = len(tokenizers.main)
        self._transcripts = TranscriptStore()
        self._max_model_len = max_model_len
        self.token_bytes = TokenBytes(tokenizers.main)
        self._max_token_chars = max(map(len, tokenizers.main.get_vocab()))

    def build(
        self,
        messages: Sequence[ChatMessage],
        *,
        owner: str,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        known_transcripts: Sequence[Transcript] = (),
    ) -> ChatPrompt:
        """The prompt for the next reply, or for more of the last one.

        Of `known_transcripts` the one that fits is used; what is damaged or foreign is ignored.

        Raises:
            InvalidParameterError: the messages cannot be used; `field` names the one at fault.
            ContextLengthError: they are so long that no context could hold them.
        """
        messages = checked_messages(messages)
        _check_flags(messages, add_generation_prompt, continue_final_message)
        self._check_size(messages)
        hidden = [
            ChatMessage(message.role, self._literals.hide(message.content, message.role))
            for message in messages
        ]
        text = self._template.render(
            hidden,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )
        known = {transcript.digest: transcript for transcript in known_transcripts}
        stored, rest = self._from_transcript(hidden, text, owner, known)
        token_ids = (*stored, *self._encoder.encode(rest))
        return ChatPrompt(text, token_ids, len(stored), continue_final_message)

    def remember(
        self, prompt: ChatPrompt, *, owner: str, reply_text: str, reply_token_ids: Sequence[int]
    ) -> Transcript | None:
        """Keep an answer's ids for the turn after it; the result is for keeping them elsewhere.

        Ids past `reply_text` are dropped; text past the last whole id (a stop string cut there) is
        encoded once, here. None: there is nothing to keep.
        """
        if not reply_text:
            return None
        kept, rest = self._split_reply(reply_text, reply_token_ids)
        try:
            token_ids = [*prompt.token_ids, *kept, *self._encoder.encode_inside(rest)]
        except InvalidParameterError:  # a control token that cannot be text: encode anew next time
            return None
        text = prompt.text + self._literals.hide(
            self.space_before(prompt, kept) + reply_text, "assistant"
        )
        digest = transcript_digest(self._identity, text)
        self._transcripts.put(TranscriptKey(owner, digest), token_ids)
        return pack_transcript(digest, token_ids)

    def space_before(self, prompt: ChatPrompt, reply_token_ids: Sequence[int]) -> str:
        """The space that a continued reply begins with where its decode alone has none.

        Sentencepiece decoders drop it at the start of any text.
        """
        if not prompt.is_continued:
            return ""
        last_token_ids = prompt.token_ids[-1:]
        first_token_ids = reply_token_ids[:_MAX_UNSHOWN_TOKENS]  # the others do not matter here
        before = decode_text(self._tokenizer, last_token_ids)
        joined = decode_text(self._tokenizer, [*last_token_ids, *first_token_ids])
        reply = decode_text(self._tokenizer, first_token_ids)
        return " " if joined == before + " " + reply else ""

    def _from_transcript(
        self,
        messages: Sequence[ChatMessage],
        text: str,
        owner: str,
        known: Mapping[bytes, Transcript],
    ) -> _StoredPart:
        """The ids of the longest stored part of the conversation, and the text after it."""
        replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
        for index in replies[: -_MAX_REPLIES_LOOKED_UP - 1 : -1]:
            stored_text = self._text_up_to_reply(messages, index)
            if stored_text is None or not text.startswith(stored_text):
                continue  # the template rewrites this part of the history: it wins
            rest = text[len(stored_text) :]
            digest = transcript_digest(self._identity, stored_text)
            stored = self._stored_ids(TranscriptKey(owner, digest), known)
            if stored and (not rest or self._encoder.starts_with_control_token(rest)):
                return _StoredPart(stored, rest)
        return _StoredPart((), text)

    def _stored_ids(
        self, key: TranscriptKey, known: Mapping[bytes, Transcript]
    ) -> tuple[int, ...] | None:
        """From memory, or from what the caller has kept, which is then in memory."""
        stored = self._transcripts.get(key)
        if stored is None and key.digest in known:
            stored = unpack_transcript(
                known[key.digest], max_tokens=self._max_model_len, vocab_size=self._vocab_size
            )
            if stored is not None:
                self._transcripts.put(key, stored)
        return stored

    def _text_up_to_reply(self, messages: Sequence[ChatMessage], index: int) -> str | None:
        """What was rendered when the reply at `index` was asked for, and the reply."""
        try:
            asked = self._template.render(messages[:index], add_generation_prompt=True)
        except InvalidParameterError:  # cannot have been asked like this
            return None
        return asked + messages[index].content

    def _split_reply(self, text: str, token_ids: Sequence[int]) -> _SplitReply:
        """The longest beginning of `token_ids` that lies in `text`, and the text after it."""
        kept = list(token_ids)
        while kept and kept[-1] in self._special_ids:
            kept.pop()  # the template writes the end token of a turn
        for _ in range(_MAX_UNSHOWN_TOKENS):
            shown = decode_text(self._tokenizer, kept)
            if text.startswith(shown):
                return _SplitReply(kept, text[len(shown) :])
            kept.pop()
        return _SplitReply([], text)

    def _check_size(self, messages: Sequence[ChatMessage]) -> None:
        num_chars = sum(len(message.content) for message in messages)
        max_chars = self._max_model_len * self._max_token_chars
        if num_chars > max_chars:
            raise ContextLengthError(
                f"The messages have {num_chars} characters, more than this model's context of "
                f"{self._max_model_len} tokens can hold: shorten them or start a new chat.",
                "messages",
            )


def _check_flags(
    messages: Sequence[ChatMessage], add_generation_prompt: bool, continue_final_message: bool
) -> None:
    if not continue_final_message:
        return
    if add_generation_prompt:
        raise InvalidParameterError(
            "continue_final_message goes on with the last message and add_generation_prompt begins "
            "a new one: set only one of them.",
            "continue_final_message",
        )
    if messages[-1].role != "assistant":
        raise InvalidParameterError(
            "continue_final_message needs a last message of the assistant.",
            "continue_final_message",
        )
