"""Which share of a GPU goes where, and how many conversations that holds. Plain arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import ConfigError
from engine.model.outline import ModelOutline

GIB = 1024**3
# What PyTorch's allocator and the libraries' work spaces hold beside the tensors themselves.
_FIXED_WORK_SPACE_BYTES = GIB // 2
_BYTES_PER_FLOAT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWishes:
    """What there is, and what it should hold."""

    gpu_bytes: int
    gpu_memory_utilization: float = 0.9
    kv_format: str = "int8"
    block_size: int = 16
    context: int | None = None  # tokens of one conversation; None: all that the model allows
    concurrency: int = 1  # conversations in memory at the same time
    max_num_batched_tokens: int = 1024
    max_num_seqs: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatPlan:
    """One KV format: what a conversation takes, and what there is room for."""

    name: str
    bytes_per_token: int
    bytes_per_conversation: int  # in whole blocks
    num_conversations: int  # of the wished length, beside each other
    num_tokens: int  # in all
    needed_bytes: int  # for the wished number of conversations
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    outline: ModelOutline
    wishes: MemoryWishes
    context: int
    usable_bytes: int
    work_space_bytes: int
    pool_bytes: int  # what is left for KV; 0 where the weights alone are too large
    formats: tuple[FormatPlan, ...]

    @property
    def chosen(self) -> FormatPlan:
        return self.format_named(self.wishes.kv_format)

    def format_named(self, name: str) -> FormatPlan:
        return next(plan for plan in self.formats if plan.name == name)


def plan_memory(outline: ModelOutline, wishes: MemoryWishes) -> MemoryPlan:
    """Weights and work space first; the rest of the allowed share is for KV.

    Raises:
        ConfigError: the wished KV format cannot hold this model's heads.
    """
    if wishes.kv_format not in outline.kv_bytes_per_token:
        raise ConfigError(
            f"--kv-cache-dtype {wishes.kv_format} cannot hold the heads of {outline.name}, which "
            f"have {outline.head_dim} numbers: use {', '.join(outline.kv_bytes_per_token)}."
        )
    usable_bytes = int(wishes.gpu_bytes * wishes.gpu_memory_utilization)
    work_space_bytes = estimate_work_space(outline, wishes)
    pool_bytes = max(0, usable_bytes - outline.weights_bytes - work_space_bytes)
    context = min(wishes.context or outline.max_model_len, outline.max_model_len)
    return MemoryPlan(
        outline=outline,
        wishes=wishes,
        context=context,
        usable_bytes=usable_bytes,
        work_space_bytes=work_space_bytes,
        pool_bytes=pool_bytes,
        formats=tuple(
            plan_format(name, bytes_per_token, context, pool_bytes, wishes)
            for name, bytes_per_token in outline.kv_bytes_per_token.items()
        ),
    )


def plan_format(
    name: str, bytes_per_token: int, context: int, pool_bytes: int, wishes: MemoryWishes
) -> FormatPlan:
    """In whole blocks, and one block more, as the engine keeps: a turn copies its partial one."""
    bytes_per_block = bytes_per_token * wishes.block_size
    blocks_per_conversation = -(-context // wishes.block_size)
    num_blocks = max(0, pool_bytes // bytes_per_block - 1)
    needed_bytes = (wishes.concurrency * blocks_per_conversation + 1) * bytes_per_block
    return FormatPlan(
        name=name,
        bytes_per_token=bytes_per_token,
        bytes_per_conversation=blocks_per_conversation * bytes_per_block,
        num_conversations=num_blocks // blocks_per_conversation,
        num_tokens=num_blocks * wishes.block_size,
        needed_bytes=needed_bytes,
        fits=needed_bytes <= pool_bytes,
    )


def estimate_work_space(outline: ModelOutline, wishes: MemoryWishes) -> int:
    """An assumption, since only a running model can be measured (which loading does).

    One layer's activations of a full step: the residual stream and its copies, queries, keys,
    values and the attention's output, the three inner vectors of each expert that a token visits;
    then the logits of every running request, once more in float32; and half a GiB.
    """
    heads = 2 * outline.num_attention_heads + 2 * outline.num_kv_heads
    numbers_per_token = (
        4 * outline.hidden_size
        + heads * outline.head_dim
        + 3 * outline.intermediate_size * outline.num_active_experts
    )
    activations_bytes = wishes.max_num_batched_tokens * numbers_per_token * outline.bytes_per_number
    logits_bytes = (
        wishes.max_num_seqs * outline.vocab_size * (outline.bytes_per_number + _BYTES_PER_FLOAT32)
    )
    return activations_bytes + logits_bytes + _FIXED_WORK_SPACE_BYTES
