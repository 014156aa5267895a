"""What /v1 answers. Only fields that were set are written: None is null, an unset one is absent."""

from __future__ import annotations

from pydantic import BaseModel


class _Answer(BaseModel):
    def json_text(self) -> str:
        return self.model_dump_json(exclude_unset=True)


class TopLogprobContent(_Answer):
    token: str
    logprob: float
    bytes: list[int]


class LogprobContent(TopLogprobContent):
    top_logprobs: list[TopLogprobContent]


class LogprobsContent(_Answer):
    content: list[LogprobContent]


class PromptTokensDetails(_Answer):
    cached_tokens: int


class UsageContent(_Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class ReplyMessage(_Answer):
    role: str
    content: str


class ReplyChoice(_Answer):
    index: int
    message: ReplyMessage
    logprobs: LogprobsContent | None
    finish_reason: str
    stop_reason: str | int | None = None
    token_ids: list[int] = []


class ChatCompletion(_Answer):
    id: str
    object: str
    created: int
    model: str
    choices: list[ReplyChoice]
    usage: UsageContent
    prompt_token_ids: list[int] = []


class Delta(_Answer):
    role: str = ""
    content: str = ""


class ChunkChoice(_Answer):
    index: int
    delta: Delta
    logprobs: LogprobsContent | None = None
    finish_reason: str | None
    stop_reason: str | int | None = None
    token_ids: list[int] = []


class ChatCompletionChunk(_Answer):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageContent | None = None
    prompt_token_ids: list[int] = []


class ModelCard(_Answer):
    id: str
    object: str
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int


class ModelList(_Answer):
    object: str
    data: list[ModelCard]
