"""RequestOutputs -> the objects of a chat completion, streamed or whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine import FinishReason, RequestOutput, TokenLogprob, TokenLogprobs, Usage
from ui.api.errors import ApiError
from ui.api.responses import (
    ChatCompletion,
    ChatCompletionChunk,
    ChunkChoice,
    Delta,
    LogprobContent,
    LogprobsContent,
    PromptTokensDetails,
    ReplyChoice,
    ReplyMessage,
    TopLogprobContent,
    UsageContent,
)


@dataclass(slots=True, kw_only=True)
class Reply:
    """One reply being written. What its client asked to see decides what its objects hold."""

    id: str
    created_s: int
    model: str
    prompt_token_ids: Sequence[int]
    token_bytes: Callable[[int], bytes]
    with_logprobs: bool
    with_token_ids: bool
    with_usage: bool  # of a stream; a whole completion always has it
    _is_begun: bool = False
    _outputs: list[RequestOutput] = field(default_factory=list)

    def chunks(self, output: RequestOutput) -> list[ChatCompletionChunk]:
        """What a stream sends for one output; nothing while there is nothing to show.

        Raises:
            ApiError: the output says that the request failed.
        """
        _check(output)
        chunks = []
        if not self._is_begun:
            self._is_begun = True
            chunks.append(self._opening_chunk())
        if self._has_news(output):
            chunks.append(self._content_chunk(output))
        if output.finish_reason is not None and self.with_usage:
            chunks.append(self._chunk([], usage_content(output.usage)))
        return chunks

    def add(self, output: RequestOutput) -> None:
        """Keep an output for `completion`.

        Raises:
            ApiError: the output says that the request failed.
        """
        _check(output)
        self._outputs.append(output)

    def completion(self) -> ChatCompletion:
        last = self._outputs[-1]
        assert last.finish_reason is not None
        text = "".join(output.text for output in self._outputs)
        choice = ReplyChoice(
            index=0,
            message=ReplyMessage(role="assistant", content=text),
            logprobs=self._logprobs([pair for o in self._outputs for pair in o.logprobs]),
            finish_reason=last.finish_reason.value,
            stop_reason=last.stop_reason,
        )
        completion = ChatCompletion(
            id=self.id,
            object="chat.completion",
            created=self.created_s,
            model=self.model,
            choices=[choice],
            usage=usage_content(last.usage),
        )
        if self.with_token_ids:
            choice.token_ids = [token_id for o in self._outputs for token_id in o.token_ids]
            completion.prompt_token_ids = list(self.prompt_token_ids)
        return completion

    def _has_news(self, output: RequestOutput) -> bool:
        if output.text or output.finish_reason is not None:
            return True
        return bool(output.token_ids) and (self.with_logprobs or self.with_token_ids)

    def _opening_chunk(self) -> ChatCompletionChunk:
        choice = ChunkChoice(index=0, delta=Delta(role="assistant", content=""), finish_reason=None)
        chunk = self._chunk([choice], None)
        if self.with_token_ids:
            chunk.prompt_token_ids = list(self.prompt_token_ids)
        return chunk

    def _content_chunk(self, output: RequestOutput) -> ChatCompletionChunk:
        choice = ChunkChoice(
            index=0,
            delta=Delta(content=output.text),
            logprobs=self._logprobs(output.logprobs),
            finish_reason=None,
        )
        if output.finish_reason is not None:
            choice.finish_reason = output.finish_reason.value
            choice.stop_reason = output.stop_reason
        if self.with_token_ids:
            choice.token_ids = list(output.token_ids)
        return self._chunk([choice], None)

    def _chunk(self, choices: list[ChunkChoice], usage: UsageContent | None) -> ChatCompletionChunk:
        chunk = ChatCompletionChunk(
            id=self.id,
            object="chat.completion.chunk",
            created=self.created_s,
            model=self.model,
            choices=choices,
        )
        if self.with_usage:
            chunk.usage = usage
        return chunk

    def _logprobs(self, pairs: Sequence[TokenLogprobs]) -> LogprobsContent | None:
        if not self.with_logprobs:
            return None
        return LogprobsContent(content=[self._logprob(pair) for pair in pairs])

    def _logprob(self, pair: TokenLogprobs) -> LogprobContent:
        chosen = self._entry(pair.chosen)
        return LogprobContent(
            token=chosen.token,
            logprob=chosen.logprob,
            bytes=chosen.bytes,
            top_logprobs=[self._entry(entry) for entry in pair.top],
        )

    def _entry(self, entry: TokenLogprob) -> TopLogprobContent:
        raw = self.token_bytes(entry.token_id)
        return TopLogprobContent(
            token=raw.decode(errors="replace"),
            logprob=max(entry.logprob, _LOWEST_LOGPROB),
            bytes=list(raw),
        )


# JSON has no -inf
_LOWEST_LOGPROB = -9999.0


def usage_content(usage: Usage | None) -> UsageContent:
    assert usage is not None, "the last output of a request has its usage"
    return UsageContent(
        prompt_tokens=usage.num_prompt_tokens,
        completion_tokens=usage.num_output_tokens,
        total_tokens=usage.num_prompt_tokens + usage.num_output_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=usage.num_cached_tokens),
    )


def _check(output: RequestOutput) -> None:
    if output.finish_reason is FinishReason.ERROR:
        raise ApiError(500, output.error or "The request failed.", code="generation_failed")
    if output.finish_reason is FinishReason.ABORT:
        message = "The request was ended before its reply was complete. Send it again."
        raise ApiError(503, message, code="request_aborted")
