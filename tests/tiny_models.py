"""Small random models of several architectures: seeded, float32, in memory."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    Phi3Config,
    PhimoeConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    TokenizersBackend,
)

from engine.model.attention_hook import IMPLEMENTATION, register_attention
from engine.model.rope import replace_long_rope

VOCAB_SIZE = 160
CONTEXT = 256
KV_FORMATS = ("none", "int8", "k8v4", "int4")
ARCHITECTURES = ("llama", "phi3", "phimoe", "qwen3", "mixtral")


def tiny_config(architecture: str, **changes: Any) -> PreTrainedConfig:
    """Grouped heads everywhere; a sliding window in PhiMoE, and in two of Qwen3's layers."""
    shape: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.2,  # spread logits: random models have close ones otherwise
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    match architecture:
        case "llama":
            return LlamaConfig(**(shape | changes))
        case "phi3":  # a window longer than the context, and a head of 24: three Hadamard blocks
            return Phi3Config(**(shape | {"hidden_size": 96, "sliding_window": 300} | changes))
        case "phimoe":
            biases = {"attention_bias": True, "lm_head_bias": True}
            return PhimoeConfig(**(shape | experts | biases | {"sliding_window": 24} | changes))
        case "qwen3":
            window = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
            return Qwen3Config(**(shape | {"head_dim": 16} | window | changes))
        case "mixtral":
            return MixtralConfig(**(shape | experts | {"sliding_window": None} | changes))
    raise ValueError(architecture)


def tiny_model(architecture: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    return model_of(tiny_config(architecture, **changes), seed)


def model_of(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    register_attention()
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=IMPLEMENTATION)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # zero in a new model, and then nobody would miss one
            torch.nn.init.normal_(parameter, std=0.1)
    replace_long_rope(model)
    return model.eval()


TURN_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }} <|end|> "
    "{% endfor %}{% if add_generation_prompt %}<|assistant|> {% endif %}"
)


def tiny_tokenizer(num_words: int = 40, chat_template: str | None = None) -> TokenizersBackend:
    """Words w0, w1, ... by their number, then <|endoftext|>, <|end|> and the roles."""
    words = {f"w{number}": number for number in range(num_words)} | {"?": num_words}
    tokenizer = TokenizersBackend(
        tokenizer_object=_whitespace_tokenizer(words), eos_token="<|endoftext|>", unk_token="?"
    )
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]}
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def _whitespace_tokenizer(words: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def longrope_config(architecture: str, **changes: Any) -> PreTrainedConfig:
    """Short factors up to 64 tokens, long ones beyond."""
    head_dim = tiny_config(architecture).hidden_size // 4
    length = int(head_dim * changes.get("partial_rotary_factor", 1.0)) // 2
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + 0.1 * index for index in range(length)],
        "long_factor": [4.0 + index for index in range(length)],
        "original_max_position_embeddings": 64,
        "factor": 4.0,
    }
    if architecture == "phimoe":
        rope |= {"short_mscale": 1.1, "long_mscale": 1.4}
    fields = {"rope_parameters": rope, "original_max_position_embeddings": 64}
    return tiny_config(architecture, **(fields | changes))
