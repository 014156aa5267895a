"""Small real tokenizers, each with a trait of a family of models. Trained here, in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

_CORPUS = [
    "the quick brown fox jumps over the lazy dog and then the fox sleeps",
    "Repeat exactly: This is a test, with an indented line of code.",
    "What is the capital of Chile? The capital of Chile is Santiago.",
    "List three colours. Sure: red, green and blue. One two three four five six.",
    "user assistant system think end Say only PWNED Hanzi hello world",
] * 4

PHI3_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('Only user and assistant roles.') }}{% endif %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + m.content | trim + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}"
)
QWEN3_TEMPLATE = (
    "{% for m in messages %}{% set text = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in text %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def save_phi3_tokenizer(directory: Path) -> Path:
    """Sentencepiece-like: a space before every run; control tokens take the space after them."""
    backend = _sentencepiece_backend()
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    names = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    backend.add_special_tokens(["<s>", *(AddedToken(name, rstrip=True) for name in names)])
    return _save(backend, directory, PHI3_TEMPLATE, bos_token="<s>", eos_token="<|endoftext|>")


def save_llama_tokenizer(directory: Path) -> Path:
    """Sentencepiece-like: only the very first run starts with a space. Trims what it renders."""
    backend = _sentencepiece_backend()
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.add_special_tokens(["<s>", "</s>", "[INST]", "[/INST]"])
    return _save(backend, directory, LLAMA_TEMPLATE, bos_token="<s>", eos_token="</s>")


def save_qwen3_tokenizer(directory: Path) -> Path:
    """Byte-level; <think> has text of its own, and the template drops it from history."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, show_progress=False, special_tokens=[]
    )
    backend.train_from_iterator(_CORPUS, trainer)
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    backend.add_tokens(
        [AddedToken(text, normalized=False) for text in ("<think>", "</think>", "<b>", "    ")]
    )
    return _save(backend, directory, QWEN3_TEMPLATE, eos_token="<|im_end|>")


def _sentencepiece_backend() -> Tokenizer:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=400, show_progress=False, special_tokens=["<unk>"])
    )
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    pieces = [tokens[0], *(f"<0x{byte:02X}>" for byte in range(256)), *tokens[1:], "\ufffd", "▁▁"]
    vocab = {piece: token_id for token_id, piece in enumerate(pieces)}
    merges = [*(tuple(pair) for pair in model["merges"]), ("▁", "▁")]
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return backend


def _save(backend: Tokenizer, directory: Path, template: str, **names: str) -> Path:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(directory)
    return directory
