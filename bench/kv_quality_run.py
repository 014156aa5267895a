"""The part of `bench.kv_quality` that needs PyTorch: loads every version and reads the texts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

from bench.forced_texts import generated_chat, shipped_text
from bench.kv_quality import Version
from bench.teacher_forcing import PositionScores, compare
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.model.assembly import ModelShape, RunnerFactory, runner_factory
from engine.model.limits import resolve_eos_token_ids
from engine.model.loader import load_weights
from engine.model.sources import model_directory


def measure(
    config: EngineConfig,
    versions: Sequence[Version],
    text: str | None,
    num_tokens: int,
    ranges: Sequence[tuple[int, int]],
    with_chat: bool,
) -> dict[str, Any]:
    """`text`, `positions` by range, `chat`: each `schemes` and `weights`, each a format's figures.

    Raises:
        ConfigError: the text is shorter than the tokens asked for.
    """
    directory = model_directory(config, print)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    models: dict[str, PreTrainedModel] = {}
    factories: dict[Version, RunnerFactory] = {}
    for version in versions:
        dtype = version.config.dtype
        if dtype not in models:
            models[dtype] = load_weights(directory, version.config)
        factories[version] = runner_factory(version.config, models[dtype], tokenizer)
    exact = models.get("float32") or load_weights(directory, config)
    # Plain PyTorch: what every kernel is held against.
    reference = replace(runner_factory(config, exact, tokenizer), backend_name="reference")
    num_tokens = min(num_tokens, reference.max_model_len)
    token_ids = tokenizer.encode(text or shipped_text(), add_special_tokens=False)[:num_tokens]
    if len(token_ids) < num_tokens:
        raise ConfigError(
            f"The text has {len(token_ids)} tokens only: use --tokens {len(token_ids)} or another."
        )
    by_name = {f"{version.kind}/{version.name}": factory for version, factory in factories.items()}
    print(f"Reading {num_tokens} tokens with {len(by_name)} versions.", flush=True)
    scores = compare(reference, by_name, token_ids, report=_report)
    ratios = {name: _bytes_ratio(name, factory) for name, factory in by_name.items()}
    measured: dict[str, Any] = {
        "tokens": num_tokens,
        "text": _figures(scores, ratios, 0, num_tokens),
        "positions": {
            f"{start}-{end}": _figures(scores, ratios, start, end)
            for start, end in ranges
            if start < num_tokens - 1
        },
    }
    if with_chat:
        eos_token_ids = resolve_eos_token_ids(exact.config, exact.generation_config, tokenizer)
        chat = generated_chat(by_name.get("schemes/none", reference), tokenizer, eos_token_ids)
        if chat:
            print(f"Reading a chat of {len(chat)} tokens.", flush=True)
            chat_scores = compare(reference, by_name, chat, report=_report)
            measured["chat"] = _figures(chat_scores, ratios, 0, len(chat))
            measured["chat_tokens"] = len(chat)
    return measured


def _report(num_read: int) -> None:
    print(f"{num_read} tokens read", end="\r", file=sys.stderr, flush=True)


def _figures(
    scores: Mapping[str, PositionScores], ratios: Mapping[str, float], start: int, end: int
) -> dict[str, dict[str, dict[str, float]]]:
    figures: dict[str, dict[str, dict[str, float]]] = {"schemes": {}, "weights": {}}
    for path, found in scores.items():
        kind, name = path.split("/")
        fidelity = found.between(start, end)
        figures[kind][name] = {
            "kld": round(fidelity.kld, 6),
            "top1": round(fidelity.top1, 4),
            "perplexity": round(fidelity.perplexity, 4),
            "bytes_ratio": round(ratios[path], 4),
        }
    return figures


def _bytes_ratio(path: str, factory: RunnerFactory) -> float:
    """Size against the same in bfloat16: of the weights, or of a token's K and V."""
    if path.startswith("weights/"):
        itemsize: int = factory.model.dtype.itemsize
        return itemsize / torch.bfloat16.itemsize
    shape = ModelShape.of(factory.model.config)
    num_bytes = factory.scheme.bytes_per_token(1, 1, shape.head_dim, torch.bfloat16)
    return num_bytes / (2 * shape.head_dim * torch.bfloat16.itemsize)
