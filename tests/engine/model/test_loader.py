"""Loading from a directory, whole: what is learned of the model, and how it can go wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import ConfigError, ModelLoadError
from engine.model.assembly import LoadedModel, backend_name
from engine.model.loader import load_model, load_weights
from engine.model.rope import long_ropes
from engine.model.threads import prepare_threads
from tests.conftest import BundledModel
from tests.tiny_models import TURN_TEMPLATE, longrope_config, model_of, tiny_model, tiny_tokenizer


def saved(directory: Path, architecture: str = "llama", **changes: Any) -> Path:
    tiny_model(architecture, eos_token_id=5, **changes).save_pretrained(directory)
    tiny_tokenizer(chat_template=TURN_TEMPLATE).save_pretrained(directory)
    return directory


def load(directory: Path, **settings: Any) -> LoadedModel:
    settings = {"kv_cache_memory_bytes": 2**20} | settings
    return load_model(EngineConfig(model=str(directory), **settings), lambda sentence: None)


def test_what_is_learned_of_a_model(tmp_path: Path) -> None:
    said: list[str] = []
    config = EngineConfig(model=str(saved(tmp_path)), num_gpu_blocks_override=40)
    info = load_model(config, said.append).info
    assert said[:3] == [
        "Loading the tokenizer.",
        "Loading the weights.",
        "Making room for the KV cache and trying the model.",
    ]
    assert (info.name, info.architecture) == (str(tmp_path), "LlamaForCausalLM")
    assert (info.device, info.dtype, info.attention_backend) == ("cpu", "float32", "numba")
    assert (info.num_layers, info.num_attention_heads) == (3, 4)
    assert (info.num_kv_heads, info.head_dim) == (2, 16)
    assert (info.vocab_size, info.max_model_len) == (46, 256)
    assert info.eos_token_ids == {5, 41, 42}
    assert (info.kv_scheme, info.kv_bytes_per_token) == ("int8", 2 * 3 * 2 * 18)
    assert (info.block_size, info.num_blocks) == (16, 40)
    assert info.weights_bytes == 4 * info.num_parameters


@pytest.mark.parametrize(("scheme", "is_announced"), [("auto", False), ("int4", True)])
def test_a_kv_format_that_auto_would_not_take_is_announced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str, is_announced: bool
) -> None:
    said: list[str] = []
    directory = saved(tmp_path)
    settings = {"kv_cache_dtype": scheme, "attention_backend": "reference"}
    load_model(
        EngineConfig(model=str(directory), num_gpu_blocks_override=40, **settings), said.append
    )
    assert any("int4 was never measured" in sentence for sentence in said) == is_announced
    assert ("int4 was never measured" in caplog.text) == is_announced


def test_a_second_load_has_the_same_fingerprint(tmp_path: Path) -> None:
    directory = saved(tmp_path)
    assert load(directory).info.fingerprint == load(directory).info.fingerprint


@pytest.mark.parametrize(
    ("name", "small_bytes", "large_bytes"),
    [("int8", 216, 1040), ("k8v4", 168, 840), ("int4", 138, 620)],
)
def test_br_11_each_model_has_its_own_geometry(
    tmp_path: Path, name: str, small_bytes: int, large_bytes: int
) -> None:
    small = saved(tmp_path / "small")
    large = saved(tmp_path / "large", "phi3", num_hidden_layers=5, num_key_value_heads=4)
    shapes = [
        (info.num_layers, info.num_kv_heads, info.head_dim, info.kv_bytes_per_token)
        for info in (
            load(directory, kv_cache_dtype=name, attention_backend="reference").info
            for directory in (small, large, small)
        )
    ]
    assert shapes == [(3, 2, 16, small_bytes), (5, 4, 24, large_bytes), (3, 2, 16, small_bytes)]


def test_br_12_longrope_serves_what_the_model_was_trained_for(tmp_path: Path) -> None:
    model_of(longrope_config("phi3")).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    info = load(tmp_path).info
    assert (info.max_model_len, info.rope_original_max_len) == (256, 64)
    assert load(tmp_path, max_model_len=200).info.max_model_len == 200
    config = EngineConfig(model=str(tmp_path))
    assert len(long_ropes(load_weights(tmp_path, config))) == 1


def test_br_12_a_table_for_each_length_is_refused_at_the_start(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    saved(tmp_path, rope_parameters=rope)
    with pytest.raises(ConfigError, match="--max-model-len 300 is not possible: beyond 256 tokens"):
        load(tmp_path, max_model_len=300)
    info = load(tmp_path).info
    assert (info.max_model_len, info.rope_original_max_len) == (256, None)


def test_missing_weights_are_never_made_up(tmp_path: Path) -> None:
    saved(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"lacks 1 .* model.layers.1.mlp.up_proj.weight"):
        load(tmp_path)


def test_weights_of_nan_are_refused(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="output is not a number: its weights may be damaged"):
        load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "made_up", "architectures": ["MadeUp"]},
        {"model_type": ["llama"]},
        {"num_attention_heads": "many"},
    ],
)
def test_a_configuration_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, changes: Mapping[str, Any]
) -> None:
    saved(tmp_path)
    path = tmp_path / "config.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(described | changes), encoding="utf-8")
    with pytest.raises(ModelLoadError, match="cannot be loaded: ") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (["config.json", "pytorch_model.bin"], "only in the form of pytorch_model.bin"),
        (["config.json"], r"has no \.safetensors files"),
    ],
)
def test_weights_of_another_form_are_not_looked_at(
    tmp_path: Path, files: list[str], sentence: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(ModelLoadError, match=sentence):
        load(tmp_path)


def test_half_precision_is_as_asked(tmp_path: Path) -> None:
    info = load(saved(tmp_path), dtype="bfloat16", kv_cache_dtype="none").info
    assert (info.dtype, info.kv_bytes_per_token) == ("bfloat16", 2 * 3 * 2 * 32)


def test_the_numba_back_end_is_for_the_cpu() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert (backend_name("auto", cpu), backend_name("auto", cuda)) == ("numba", "reference")
    assert backend_name("reference", cpu) == "reference"
    with pytest.raises(ConfigError, match="numba runs on a CPU only"):
        backend_name("numba", cuda)


def test_thread_variables_are_set_unless_somebody_did(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    prepare_threads(tmp_path, environment)
    assert environment == {
        "GOMP_SPINCOUNT": "1000",
        "NUMBA_THREADING_LAYER": "omp",
        "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
    }
    own = {"GOMP_SPINCOUNT": "0", "NUMBA_THREADING_LAYER": "workqueue", "NUMBA_CACHE_DIR": "/mine"}
    prepare_threads(tmp_path, environment := dict(own))
    assert environment == own


def test_the_bundled_model_is_what_it_says(
    loaded_bundled_model: LoadedModel, bundled_model: BundledModel
) -> None:
    info = loaded_bundled_model.info
    assert (info.name, info.architecture) == ("bundled", "LlamaForCausalLM")
    assert (info.num_parameters, info.weights_bytes) == (134_515_008, 538_060_032)
    assert (info.num_layers, info.num_kv_heads, info.head_dim) == (30, 3, 64)
    assert (info.vocab_size, info.max_model_len) == (49152, 4096)
    assert info.eos_token_ids == {bundled_model.tokenizer.convert_tokens_to_ids("<|im_end|>")}
    assert info.kv_bytes_per_token == 2 * 30 * 3 * 66
    assert info.generation_defaults == {"temperature": 0.2, "top_p": 0.9}
