"""Models with Python code of their own: refused without the option, run with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers.dynamic_module_utils
from transformers import LlamaForCausalLM

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.model.assembly import LoadedModel
from engine.model.loader import load_model
from engine.model.outline_reader import read_outline
from engine.model.remote_code import RemoteCode, allowed_remote_code
from engine.text.tokenizer import load_tokenizers
from tests.tiny_models import TURN_TEMPLATE, tiny_model, tiny_tokenizer

CODE = {
    "configuration_own.py": """
from transformers import LlamaConfig

class OwnConfig(LlamaConfig):
    model_type = "own"
""",
    "modeling_own.py": """
from transformers import LlamaForCausalLM
from .configuration_own import OwnConfig

class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
""",
    "tokenization_own.py": """
from transformers import PreTrainedTokenizerFast

class OwnTokenizer(PreTrainedTokenizerFast):
    is_own = True
""",
}
MODEL_CLASSES = {
    "AutoConfig": "configuration_own.OwnConfig",
    "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
}
TOKENIZER_CLASSES = {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]}


@pytest.fixture(autouse=True, scope="module")
def _own_modules_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Transformers copies code that it runs: not into the home directory here."""
    cache = str(tmp_path_factory.mktemp("modules"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", cache)
        patch.syspath_prepend(cache)
        yield


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def save_own(directory: Path, code: Mapping[str, str] = CODE) -> Path:
    """A tiny Llama under a name that only its own code knows."""
    tiny_model("llama").save_pretrained(directory)
    tiny_tokenizer(chat_template=TURN_TEMPLATE).save_pretrained(directory)
    change(directory / "config.json", model_type="own", auto_map=MODEL_CLASSES)
    change(
        directory / "tokenizer_config.json",
        tokenizer_class="OwnTokenizer",
        auto_map=TOKENIZER_CLASSES,
    )
    for name, text in code.items():
        (directory / name).write_text(text)
    return directory


def load(directory: Path, **settings: Any) -> LoadedModel:
    settings = {"kv_cache_memory_bytes": 2**20} | settings
    return load_model(EngineConfig(model=str(directory), **settings), lambda sentence: None)


def test_without_the_option_nothing_of_it_runs(tmp_path: Path) -> None:
    save_own(tmp_path, dict.fromkeys(CODE, "raise SystemExit('it ran')"))
    with pytest.raises(ModelLoadError) as caught:
        load(tmp_path)
    sentence = str(caught.value)
    files = "configuration_own.py, modeling_own.py, tokenization_own.py"
    assert f"{tmp_path} runs only with Python code of its own ({files})" in sentence
    assert f"Read it at {tmp_path} first" in sentence
    assert "--trust-remote-code" in sentence
    with pytest.raises(ModelLoadError, match="--trust-remote-code"):
        read_outline(EngineConfig(model=str(tmp_path)))


def test_with_the_option_it_is_the_model_that_it_is(tmp_path: Path) -> None:
    save_own(tmp_path / "own")
    tiny_model("llama").save_pretrained(tmp_path / "plain")
    tiny_tokenizer(chat_template=TURN_TEMPLATE).save_pretrained(tmp_path / "plain")
    own = load(tmp_path / "own", trust_remote_code=True)
    plain = load(tmp_path / "plain")
    assert own.info.architecture == "OwnForCausalLM"
    assert own.info.tokenizer_runs_code
    assert not plain.info.tokenizer_runs_code
    weights = own.runner._model.state_dict()  # type: ignore[attr-defined]
    for name, weight in plain.runner._model.state_dict().items():  # type: ignore[attr-defined]
        assert torch.equal(weight, weights[name])


def test_the_web_server_s_tokenizer_runs_its_code_only_if_the_engine_s_did(tmp_path: Path) -> None:
    save_own(tmp_path)
    assert load_tokenizers(tmp_path, runs_code=True).main.is_own
    with pytest.raises(ModelLoadError, match="tokenizer"):
        load_tokenizers(tmp_path)


def test_an_outline_needs_the_code_too(tmp_path: Path) -> None:
    save_own(tmp_path)
    outline = read_outline(EngineConfig(model=str(tmp_path), trust_remote_code=True))
    assert outline.architecture == "OwnForCausalLM"


def test_a_native_class_is_taken_even_where_code_may_run(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    tiny_tokenizer(chat_template=TURN_TEMPLATE).save_pretrained(tmp_path)
    change(tmp_path / "config.json", auto_map=MODEL_CLASSES)
    change(tmp_path / "tokenizer_config.json", auto_map=TOKENIZER_CLASSES)
    for settings in ({}, {"trust_remote_code": True}):
        loaded = load(tmp_path, **settings)
        assert loaded.info.architecture == LlamaForCausalLM.__name__
        assert not loaded.info.tokenizer_runs_code


@pytest.mark.parametrize(
    ("description", "tokenizer", "needed"),
    [
        ({"model_type": "phi3", "auto_map": MODEL_CLASSES}, {}, RemoteCode(False, False)),
        ({"model_type": "phimoe", "auto_map": MODEL_CLASSES}, {}, RemoteCode(False, False)),
        ({"model_type": "own"}, {}, RemoteCode(False, False)),
        ({"model_type": "own", "auto_map": MODEL_CLASSES}, {}, RemoteCode(True, False)),
        # a class for images, none for text
        ({"model_type": "vit", "auto_map": MODEL_CLASSES}, {}, RemoteCode(True, False)),
        ({"model_type": "phi3"}, {"auto_map": TOKENIZER_CLASSES}, RemoteCode(False, False)),
        ({"model_type": "own"}, {"auto_map": TOKENIZER_CLASSES}, RemoteCode(False, True)),
        ({"model_type": "own"}, {"auto_map": ["x.Slow", "x.Fast"]}, RemoteCode(False, True)),
        (
            {"model_type": "own"},
            {"auto_map": TOKENIZER_CLASSES, "tokenizer_class": "PreTrainedTokenizerFast"},
            RemoteCode(False, False),
        ),
    ],
)
def test_what_needs_code(
    tmp_path: Path, description: dict[str, Any], tokenizer: dict[str, Any], needed: RemoteCode
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(description))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    config = EngineConfig(model=str(tmp_path), trust_remote_code=True)
    assert allowed_remote_code(tmp_path, config) == needed
    if any(needed):
        with pytest.raises(ModelLoadError, match="--trust-remote-code"):
            allowed_remote_code(tmp_path, EngineConfig(model=str(tmp_path)))


def test_code_of_another_repository_is_named_by_it(tmp_path: Path) -> None:
    classes = {"AutoModelForCausalLM": "other/code--modeling_x.Model"}
    described = {"model_type": "own", "auto_map": classes}
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(
        ModelLoadError, match=r"\(modeling_x\.py\).* Read it at .*/other/code first"
    ):
        allowed_remote_code(tmp_path, EngineConfig(model=str(tmp_path)))
