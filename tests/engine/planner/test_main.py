"""The command, on the published shapes of the two models that Hearth was made for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.planner.__main__ import main
from tests.fake_hub import HubRepository, fake_hub, use_hub
from tests.tiny_models import tiny_config, tiny_model

DATA = Path(__file__).parents[2] / "data"
MOE = DATA / "phi_mini_moe.json"
LONG = DATA / "phi_3_mini_128k.json"


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    return plan


def kib(plan: dict[str, Any], name: str) -> float:
    (found,) = (other for other in plan["formats"] if other["name"] == name)
    return float(found["bytes_per_token"] / 1024)


def conversations(plan: dict[str, Any], name: str) -> int:
    (found,) = (other for other in plan["formats"] if other["name"] == name)
    return int(found["num_conversations"])


def test_phi_mini_moe(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, MOE, "--gpu-gib", 24)
    outline = plan["outline"]
    # Published as 7.6 billion, 2.4 of them active, and 15.2 GB: within 1 %.
    assert outline["num_parameters"] == 7_647_632_704
    assert outline["num_active_parameters"] == pytest.approx(2.4e9, rel=0.02)
    assert outline["weights_bytes"] == pytest.approx(15.2e9, rel=0.01)
    assert (kib(plan, "none"), kib(plan, "int8")) == (128, 65)
    assert outline["sliding_window"] == 2047
    assert (conversations(plan, "none"), conversations(plan, "int8")) == (13, 26)


def test_phi_3_mini(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, LONG, "--gpu-gib", 24, "--context", 4096)
    outline = plan["outline"]
    assert outline["num_parameters"] == 3_821_079_552
    assert outline["num_active_parameters"] == outline["num_parameters"]
    assert outline["weights_bytes"] == pytest.approx(7.6e9, rel=0.01)
    assert (kib(plan, "none"), kib(plan, "int8")) == (384, 196)
    assert outline["sliding_window"] is None  # longer than the context
    assert (conversations(plan, "none"), conversations(plan, "int8")) == (9, 18)


def test_the_tables_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(MOE), "--concurrency", "40"]) == 0
    text = capsys.readouterr().out
    assert "7.65 billion parameters, 2.36 of them used for a token" in text
    assert "32 query heads on 8 KV heads of 128" in text
    assert "a sliding window of 2,047 is masked, its blocks are kept" in text
    assert "15.3 GB in bfloat16" in text
    assert "an assumption" in text
    row = next(line for line in text.splitlines() if line.startswith("int8")).split()
    assert row[1:8] == ["65.0", "KiB", "260", "MiB", "26", "109,472", "10.2"]
    assert "--max-num-seqs 26" in text


@pytest.mark.parametrize("architecture", ["llama", "phi3", "phimoe", "qwen3", "mixtral"])
def test_parameters_are_those_of_the_real_model(
    architecture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for tied in (False, True):
        model = tiny_model(architecture, tie_word_embeddings=tied)
        model.config.save_pretrained(tmp_path)
        outline = planned(capsys, tmp_path)["outline"]
        assert outline["num_parameters"] == sum(w.numel() for w in model.parameters())
        assert outline["weights_bytes"] == sum(w.nbytes for w in model.parameters())


def test_only_visited_experts_are_active(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_config("mixtral").save_pretrained(tmp_path)
    outline = planned(capsys, tmp_path)["outline"]
    expert = 3 * 64 * 96  # three matrices; two of four experts in three layers are not visited
    assert outline["num_parameters"] - outline["num_active_parameters"] == 3 * 2 * expert


def test_the_type_decides_the_weights_and_the_format_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config("llama")
    config.dtype = torch.bfloat16
    config.save_pretrained(tmp_path)
    own, wide = planned(capsys, tmp_path), planned(capsys, tmp_path, "--dtype", "float32")
    assert (own["outline"]["dtype"], wide["outline"]["dtype"]) == ("bfloat16", "float32")
    assert wide["outline"]["weights_bytes"] == 2 * own["outline"]["weights_bytes"]
    assert kib(wide, "none") == 2 * kib(own, "none")
    assert kib(wide, "int8") == kib(own, "int8")


def test_the_bundled_model_is_read_from_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, "bundled")
    assert plan["outline"]["num_parameters"] == 134_515_008
    assert plan["outline"]["dtype"] == "float32"
    assert kib(plan, "int8") * 1024 == 2 * 30 * 3 * 66


def test_a_hub_model_costs_one_small_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_hub() as hub:
        use_hub(hub.url, tmp_path, monkeypatch)
        files = {"config.json": LONG.read_bytes(), "model.safetensors": b"many"}
        hub.repositories["team/phi"] = HubRepository(files)
        assert planned(capsys, "team/phi")["outline"]["num_layers"] == 32
        assert hub.fetched == ["config.json"]
        assert main(["team/nothing"]) == 1
    assert capsys.readouterr().err.startswith("The model hub has no team/nothing")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["./nothing"], 2, "--model ./nothing does not exist"),
        (
            ["bundled", "--gpu-gib", "0"],
            2,
            "--gpu-gib must be above 0 and below 1,000,000,000, not 0.0.",
        ),
        (
            ["bundled", "--gpu-gib", "inf"],
            2,
            "--gpu-gib must be above 0 and below 1,000,000,000, not inf.",
        ),
        (
            ["bundled", "--gpu-gib", "nan"],
            2,
            "--gpu-gib must be above 0 and below 1,000,000,000, not nan.",
        ),
        (
            ["bundled", "--concurrency", "-1"],
            2,
            "--concurrency must be above 0 and below 1,000,000,000, not -1.",
        ),
        (["bundled", "--block-size", "7"], 2, "--block-size must be a power of two"),
        ([str(MOE), "--context", "9999"], 2, "--context 9999 is more than the 4,096 tokens"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    assert capsys.readouterr().err.startswith(sentence)


def test_a_damaged_configuration_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("{", '{"model_type": "vit"}', '{"model_type": "nobody_knows"}'):
        (tmp_path / "config.json").write_text(text)
        assert main([str(tmp_path)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"The configuration of {tmp_path} cannot be used: ")
