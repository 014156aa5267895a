"""What a loaded model allows: context length, end tokens, vocabulary, size of the KV pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase

from engine.config import EngineConfig
from engine.errors import ConfigError, InvalidParameterError
from engine.model.rope import LONG_ROPE_TYPES
from engine.sampling_params import SamplingParams

_CPU_POOL_SHARE = 0.25
_CPU_POOL_MAX_BYTES = 4 * 1024**3
_GENERATION_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_PROBE = "probe"


class PoolSize(NamedTuple):
    num_blocks: int
    max_model_len: int  # lowered where the pool is the narrower limit


def resolve_max_model_len(config: PreTrainedConfig, asked: int | None) -> int:
    """The longest context: what was asked for, at most what the model supports here.

    Raises:
        ConfigError: more was asked for than the model supports, or nothing is known.
    """
    trained = getattr(config, "max_position_embeddings", None)
    if trained is None and asked is None:
        raise ConfigError("The model does not say how long its context is: set --max-model-len.")
    fixed = _length_with_one_rope_table(config)
    if fixed is not None and asked is not None and asked > fixed:
        raise ConfigError(
            f"--max-model-len {asked} is not possible: beyond {fixed} tokens this model encodes "
            "positions otherwise at each length (dynamic NTK), or in some layers only, so that "
            f"nothing computed before would hold: use at most {fixed}."
        )
    if trained is not None and asked is not None and asked > trained:
        raise ConfigError(
            f"--max-model-len {asked} is more than the {trained} tokens this model was made for: "
            f"use at most {trained}."
        )
    return min(int(length) for length in (trained, fixed, asked) if length is not None)


def resolve_eos_token_ids(
    config: PreTrainedConfig,
    generation: GenerationConfig | None,
    tokenizer: PreTrainedTokenizerBase,
) -> frozenset[int]:
    """End tokens from every place that names some, and what ends a turn in the chat template."""
    found: set[int | None] = {_turn_end(tokenizer)}
    for source in (config, generation, tokenizer):
        named = getattr(source, "eos_token_id", None)
        found.update(named if isinstance(named, list | tuple) else [named])
    return frozenset(token_id for token_id in found if token_id is not None)


def resolve_vocab_size(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Ids below this have a text, added tokens included; models pad their matrices beyond it."""
    num_known = max(tokenizer.get_vocab().values()) + 1
    return min(num_known, config.vocab_size)


def resolve_generation_defaults(generation: GenerationConfig | None) -> Mapping[str, float]:
    """The sampling that the model's authors recommend, where they do.

    `do_sample: false` recommends the likeliest token: temperature 0, whatever else is named. A
    value that no request may have is left out.
    """
    values: dict[str, Any] = {
        name: getattr(generation, name, None) for name in _GENERATION_DEFAULTS
    }
    if getattr(generation, "do_sample", None) is False:
        values["temperature"] = 0.0
    return {name: value for name, value in values.items() if _is_usable(name, value)}


def size_pool(
    config: EngineConfig, *, max_model_len: int, bytes_per_token: int, available_bytes: int
) -> PoolSize:
    """How many KV blocks to make, and the context that fits them.

    Raises:
        ConfigError: the pool cannot hold one sequence of the length that was asked for.
    """
    bytes_per_block = bytes_per_token * config.block_size
    num_blocks = config.num_gpu_blocks_override or (
        (config.kv_cache_memory_bytes or available_bytes) // bytes_per_block
    )
    # One block more than a sequence needs: the partial block that it copies when it starts.
    room = (num_blocks - 1) * config.block_size
    if room >= max_model_len:
        return PoolSize(num_blocks, max_model_len)
    if config.max_model_len is None and room >= config.block_size:
        return PoolSize(num_blocks, room)
    needed = -(-max_model_len // config.block_size) + 1
    raise ConfigError(
        f"The KV cache has room for {num_blocks} blocks of {config.block_size} tokens, but one "
        f"sequence of {max_model_len} tokens takes {needed} ({needed * bytes_per_block:,} bytes): "
        "give it more memory with --kv-cache-memory-bytes, or set a smaller --max-model-len."
    )


def cpu_pool_bytes(available_memory_bytes: int) -> int:
    """A quarter of the free memory, 4 GiB at most."""
    return min(int(available_memory_bytes * _CPU_POOL_SHARE), _CPU_POOL_MAX_BYTES)


def _is_usable(name: str, value: Any) -> bool:
    try:
        SamplingParams(**{name: value})
    except InvalidParameterError:  # None as well: nothing is recommended
        return False
    return True


def _length_with_one_rope_table(config: PreTrainedConfig) -> int | None:
    """The length up to which one table holds, where more cannot be right; else None.

    LongRoPE in all layers can be right, see engine/model/rope.py. Dynamic NTK makes another table
    of each length beyond `max_position_embeddings`.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    lengths = [
        parameters.get("original_max_position_embeddings", config.max_position_embeddings)
        for parameters in nested
        if _rope_type(parameters) in LONG_ROPE_TYPES
    ]
    if "dynamic" in {_rope_type(parameters) for parameters in (nested or [rope])}:
        lengths.append(config.max_position_embeddings)
    return min(lengths, default=None)


def _rope_type(parameters: Mapping[str, Any]) -> str | None:
    return parameters.get("rope_type", parameters.get("type"))


def _turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The control token that the chat template puts after an assistant's message."""
    if not tokenizer.chat_template:
        return None
    messages = [{"role": role, "content": _PROBE} for role in ("user", "assistant")]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # a template may refuse any conversation, with any error of its own
        return None
    tail = text.rpartition(_PROBE)[2].strip()
    token_ids = tokenizer.encode(tail, add_special_tokens=False) if tail else []
    is_control = bool(token_ids) and token_ids[0] in tokenizer.added_tokens_decoder
    return int(token_ids[0]) if is_control else None
