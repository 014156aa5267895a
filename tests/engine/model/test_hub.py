"""Fetching from a hub: what is fetched, how far it is, and every way in which it ends early."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.model.hub import fetch_config, fetch_model
from tests.fake_hub import FakeHub, HubRepository, fake_hub, use_hub

CONFIG = json.dumps({"model_type": "llama"}).encode()
MODEL = {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": bytes(3_000_000)}
CUSTOM = {
    "model_type": "ours",
    "auto_map": {"AutoConfig": "ours.Config", "AutoModelForCausalLM": "ours.Model"},
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with fake_hub() as hub:
        use_hub(hub.url, tmp_path / "cache", monkeypatch)
        hub.repositories["team/model"] = HubRepository(MODEL)
        yield hub


def fetch(hub: FakeHub, **settings: object) -> tuple[Path, list[str]]:
    said: list[str] = []
    config = EngineConfig(model="team/model", **settings)  # type: ignore[arg-type]
    return fetch_model(config, said.append), said


def refusal(hub: FakeHub, **settings: object) -> str:
    with pytest.raises(ModelLoadError) as caught:
        fetch(hub, **settings)
    return str(caught.value)


def test_everything_that_describes_a_model_is_fetched_and_nothing_else(hub: FakeHub) -> None:
    other = {"evil.py": b"", "model.bin": b"", "original/model.safetensors": b"", "x.gguf": b""}
    hub.repositories["team/model"] = HubRepository(
        MODEL | other | {"consolidated.safetensors": b""}
    )
    directory, _ = fetch(hub)
    assert sorted(path.name for path in directory.iterdir()) == sorted(MODEL)
    assert sorted(hub.fetched) == sorted(MODEL)


def test_progress_is_said_in_bytes(hub: FakeHub) -> None:
    _, said = fetch(hub)
    assert said[0] == "Looking for team/model on the model hub."
    assert said[1].startswith("Fetching team/model: ")
    assert said[1].endswith(" of 3.0 MB.")
    assert len(said) < 10


def test_a_second_start_fetches_nothing_and_says_no_progress(hub: FakeHub) -> None:
    first, _ = fetch(hub)
    hub.fetched.clear()
    second, said = fetch(hub)
    assert (second, hub.fetched, len(said)) == (first, [], 1)


def test_without_the_hub_an_earlier_copy_is_enough(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = fetch(hub)
    use_hub("http://127.0.0.1:9", tmp_path / "cache", monkeypatch)
    assert fetch(hub)[0] == first
    (first / "model.safetensors").unlink()
    assert refusal(hub).startswith("Only a part of team/model is on this machine")


def test_without_the_hub_and_a_copy_the_network_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub("http://127.0.0.1:9", tmp_path, monkeypatch)
    with pytest.raises(ModelLoadError, match="is not on this machine and the model hub cannot"):
        fetch_model(EngineConfig(model="team/model"), print)


def test_a_gated_model_names_its_page_and_both_ways_to_log_in(hub: FakeHub) -> None:
    hub.repositories["team/model"].is_gated = True
    sentence = refusal(hub)
    assert f"is gated: accept its terms at {hub.url}/team/model " in sentence
    assert "hf auth login" in sentence
    assert "HF_TOKEN" in sentence


def test_a_name_that_the_hub_does_not_have(hub: FakeHub) -> None:
    hub.repositories.clear()
    assert refusal(hub).startswith("The model hub has no team/model: check the name")


def test_a_revision_is_fetched_or_missed(hub: FakeHub) -> None:
    hub.repositories["team/model"].branches = ("main", "v2")
    assert fetch(hub, revision="v2")[0].is_dir()
    assert refusal(hub, revision="v3").startswith("team/model has no revision v3")


def test_a_hub_in_trouble_is_told_from_no_network(hub: FakeHub) -> None:
    hub.repositories["team/model"].status = 500
    assert "answered with an error (500)" in refusal(hub)
    hub.repositories["team/model"].status = 403
    assert "does not let this account read team/model" in refusal(hub)


def test_a_disk_without_room_is_told_before_the_download(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    assert "team/model needs 0.0 GB more in " in refusal(hub)
    assert hub.fetched == ["config.json"]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"config.json": CONFIG, "pytorch_model.bin": b""}, "only in the form of pytorch_model"),
        ({"model.Q4.gguf": b""}, "team/model has .gguf files only: download one of them"),
        ({"adapter_config.json": b""}, "no config.json, so it is no Transformers model"),
        ({"config.json": CONFIG}, "team/model has no .safetensors files"),
    ],
)
def test_what_cannot_be_loaded_is_not_fetched(
    hub: FakeHub, files: dict[str, bytes], sentence: str
) -> None:
    hub.repositories["team/model"] = HubRepository(files)
    assert sentence in refusal(hub)
    assert hub.fetched == []


def test_a_model_with_code_is_refused_before_its_weights_come(hub: FakeHub) -> None:
    code = {"config.json": json.dumps(CUSTOM).encode(), "ours.py": b"raise SystemExit"}
    hub.repositories["team/model"] = HubRepository(MODEL | code)
    sentence = refusal(hub)
    assert "team/model runs only with Python code of its own (ours.py)" in sentence
    assert f"Read it at {hub.url}/team/model/tree/main first" in sentence
    assert "--trust-remote-code" in sentence
    assert hub.fetched == ["config.json"]
    directory, _ = fetch(hub, trust_remote_code=True)
    assert (directory / "ours.py").is_file()


def test_a_plan_fetches_the_configuration_alone(hub: FakeHub) -> None:
    directory = fetch_config(EngineConfig(model="team/model"))
    assert (directory / "config.json").read_bytes() == CONFIG
    assert hub.fetched == ["config.json"]
    hub.repositories["team/other"] = HubRepository({"adapter_config.json": b""})
    with pytest.raises(ModelLoadError, match=r"team/other has no config\.json"):
        fetch_config(EngineConfig(model="team/other"))
