"""What `bench.kv_quality` reads: the texts that ship with it, and a chat the model makes up."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from engine.batch import ScheduledBatch, ScheduledRequest
from engine.model.assembly import RunnerFactory
from engine.request import Request
from engine.sampling_params import SamplingParams

DATA_DIRECTORY = Path(__file__).parent / "data"
_QUESTIONS = (
    "Explain in a few sentences why the sky is blue, and why it is red in the evening.",
    "Write a Python function that counts how often each word occurs in a text.",
    "Make a plan for a weekend in the mountains with two children, as a numbered list.",
)
_REPLY_TOKENS = 128


def shipped_text() -> str:
    """The texts of `bench/data`, joined."""
    files = sorted(DATA_DIRECTORY.glob("*.txt"))
    return "\n\n".join(path.read_text(encoding="utf-8").strip() for path in files)


def generated_chat(
    factory: RunnerFactory, tokenizer: PreTrainedTokenizerBase, eos_token_ids: frozenset[int]
) -> list[int]:
    """Token ids of a chat about fixed questions; the same factory and seed give the same chat.

    Empty for a model without a chat template.
    """
    if not tokenizer.chat_template:
        return []
    messages: list[dict[str, str]] = []
    token_ids: list[int] = []
    for index, question in enumerate(_QUESTIONS):
        messages.append({"role": "user", "content": question})
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        reply = _reply(factory, prompt, eos_token_ids, seed=factory.seed + index)
        messages.append({"role": "assistant", "content": tokenizer.decode(reply)})
        token_ids = [*prompt, *reply]
    return token_ids


def _reply(
    factory: RunnerFactory, prompt: list[int], eos_token_ids: frozenset[int], seed: int
) -> list[int]:
    request = Request(
        request_id="chat",
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(temperature=0.7, top_p=0.9, seed=seed),
        max_tokens=_REPLY_TOKENS,
        user=None,
        cache_salt="",
        arrival_s=0.0,
        deadline_s=None,
    )
    num_blocks = -(-(len(prompt) + _REPLY_TOKENS) // factory.block_size)
    runner = factory.make_runner(factory.make_storage(num_blocks))
    block_ids = tuple(range(num_blocks))
    num_computed = 0
    while len(request.output_token_ids) < _REPLY_TOKENS:
        count = request.num_tokens - num_computed
        part = ScheduledRequest(request, num_computed, count, block_ids, samples=True)
        token_id = runner.execute(ScheduledBatch((part,))).sampled["chat"].token_id
        if token_id in eos_token_ids:
            break
        num_computed += count
        request.append(token_id)
    return list(request.output_token_ids)
