"""From a model's generation_config.json to what a new chat starts with, on the page and in /v1."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine import ModelInfo
from engine.config import EngineConfig
from engine.model.loader import load_model
from tests.chat_factories import opened
from tests.tiny_models import tiny_model, tiny_tokenizer
from ui.api.sampling import sampling_of
from ui.api.schemas import ChatCompletionBody
from ui.chat.settings import ChatSettings

RECOMMENDED = {
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.8,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
}


def loaded_info(directory: Path, generation: dict[str, Any] | None) -> ModelInfo:
    """What loading a tiny model with this generation_config.json says of it."""
    tiny_model("llama").save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    file = directory / "generation_config.json"
    file.unlink()
    if generation is not None:
        file.write_text(json.dumps(generation))
    config = EngineConfig(model=str(directory), kv_cache_memory_bytes=2**20)
    return load_model(config, lambda sentence: None).info


def page_defaults(directory: Path, info: ModelInfo) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        async with opened(directory, info=info) as desk:
            settings: dict[str, Any] = (await desk.conversations.defaults())["settings"]
            return settings

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("generation", "changed"),
    [
        ({"do_sample": True, **RECOMMENDED}, RECOMMENDED),
        (RECOMMENDED, RECOMMENDED),
        ({"do_sample": False}, {"temperature": 0.0}),
        (
            {"do_sample": False, "temperature": 0.6, "top_p": 0.9},
            {"temperature": 0.0, "top_p": 0.9},
        ),
        ({"do_sample": True, "temperature": 5.0, "top_k": 30}, {"top_k": 30}),
        ({}, {}),
        (None, {}),
    ],
)
def test_a_new_chat_starts_with_what_the_model_recommends(
    generation: dict[str, Any] | None, changed: dict[str, Any], tmp_path: Path
) -> None:
    info = loaded_info(tmp_path / "model", generation)
    shown = page_defaults(tmp_path / "data", info)
    assert shown == ChatSettings().to_json() | changed
    assert ChatSettings.from_json(shown).sampling().is_greedy is (changed.get("temperature") == 0)
    body = ChatCompletionBody(model="tiny", messages=[{"role": "user", "content": "Hello"}])
    asked = sampling_of(body, info.generation_defaults)
    for name, value in changed.items():
        assert getattr(asked, name) == value
