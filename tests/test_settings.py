"""Settings: one description, read from options and HEARTH_* variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.settings import option_name, parse_settings, variable_name
from ui.chat.config import ChatConfig
from ui.server_config import ServerConfig

CONFIGS = (EngineConfig, ServerConfig, ChatConfig)


def parse(
    arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> tuple[EngineConfig, ServerConfig, ChatConfig]:
    engine, server, chat = parse_settings(CONFIGS, arguments, environment or {}, "Hearth.")
    return engine, server, chat


def refusal(arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(arguments, environment)
    return str(caught.value)


def help_text(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_defaults_are_those_of_the_dataclasses() -> None:
    assert parse() == (EngineConfig(), ServerConfig(), ChatConfig())


def test_options_and_variables_reach_their_fields() -> None:
    engine, server, chat = parse(
        [
            *("--model", "some/model", "--max-num-seqs=4", "--no-enable-prefix-caching"),
            *("--answer-grace-s", "9", "--data-dir", "~/chats"),
        ],
        {"HEARTH_PORT": "8000", "HEARTH_GPU_MEMORY_UTILIZATION": "0.5", "HEARTH_CACHE_DIR": "/c"},
    )
    assert (engine.model, engine.max_num_seqs, engine.enable_prefix_caching) == (
        "some/model",
        4,
        False,
    )
    assert (server.port, engine.gpu_memory_utilization, engine.cache_dir) == (8000, 0.5, Path("/c"))
    assert (server.data_path, chat.answer_grace_s) == (Path.home() / "chats", 9.0)


def test_an_option_wins_over_its_variable() -> None:
    _, server, _ = parse(["--port", "1"], {"HEARTH_PORT": "2"})
    assert server.port == 1


def test_an_empty_variable_is_none() -> None:
    _, server, _ = parse([], {"HEARTH_API_KEY": "", "HEARTH_PORT": ""})
    assert (server.api_key, server.port) == (None, 7860)


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("yes", True), ("ON", True), ("false", False), ("0", False)]
)
def test_truth_in_a_variable(text: str, value: bool) -> None:
    engine, _, _ = parse([], {"HEARTH_ENABLE_PREFIX_CACHING": text})
    assert engine.enable_prefix_caching is value


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "x"], "--port must be a whole number, not 'x'."),
        (["--port", "1.5"], "--port must be a whole number, not '1.5'."),
        (["--request-timeout-s", "nan"], "--request-timeout-s must be a finite number, not 'nan'."),
        (
            ["--dtype", "int3"],
            "--dtype must be one of auto, float32, bfloat16, float16, not 'int3'.",
        ),
        (["--modell", "x"], "Unrecognized arguments: --modell x. See --help."),
        (["--mod", "x"], "Unrecognized arguments: --mod x. See --help."),
        (["--port"], "Argument --port: expected one argument. See --help."),
        (
            ["--quantization", "int8"],
            "--quantization int8 is not there yet: use auto or none.",
        ),
        (
            ["--kv-cache-dtype", "fp8"],
            "There is no --kv-cache-dtype fp8: use auto, int8, k8v4, int4 or none.",
        ),
        (["--swap-space", "-1"], "--swap-space must be at least 0, not -1."),
        (
            ["--swap-space", "0", "--disk-cache", "/c"],
            "--disk-cache needs host memory, through which its blocks pass: leave --swap-space "
            "out, or make it larger than 0.",
        ),
        (
            ["--swap-space", "1", "--no-enable-prefix-caching"],
            "--swap-space and --disk-cache keep blocks for reuse: do not use them with "
            "--no-enable-prefix-caching.",
        ),
        (["--disk-cache", ""], "--disk-cache is empty: name a directory, or leave it out."),
        (["--disk-cache-gib", "0"], "--disk-cache-gib must be above 0, not 0."),
        (["--port", "70000"], "--port must be from 0 (any free one) to 65535, not 70000."),
        (["--api-key", " "], "--api-key must be non-empty ASCII text."),
        (["--keep-alive-interval-s", "0"], "--keep-alive-interval-s must be above 0, not 0."),
        (["--max-import-bytes", "9"], "--max-import-bytes must be at least 1024, not 9."),
        (["--answer-grace-s", "-1"], "--answer-grace-s must be above 0, not -1."),
    ],
)
def test_a_wrong_option_gives_one_sentence(arguments: list[str], sentence: str) -> None:
    assert refusal(arguments) == sentence


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("HEARTH_PORT", "x", "HEARTH_PORT must be a whole number, not 'x'."),
        (
            "HEARTH_ENABLE_PREFIX_CACHING",
            "maybe",
            "HEARTH_ENABLE_PREFIX_CACHING must be 1 or 0, not 'maybe'.",
        ),
        (
            "HEARTH_ATTENTION_BACKEND",
            "fast",
            "HEARTH_ATTENTION_BACKEND must be one of auto, reference, numba, not 'fast'.",
        ),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, sentence: str) -> None:
    assert refusal([], {variable: text}) == sentence


def test_help_explains_every_setting_with_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_text(capsys)
    for config in CONFIGS:
        for name in config.__dataclass_fields__:
            assert option_name(name) in text
            assert f"({variable_name(name)})" in " ".join(text.split())


def test_help_is_grouped_and_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_text(capsys).splitlines()
    assert "engine:" in lines
    assert "server:" in lines
    assert "chat:" in lines
    assert max(len(line) for line in lines) <= 110


def test_the_api_key_is_not_shown() -> None:
    _, server, _ = parse([], {"HEARTH_API_KEY": "sesame"})
    assert server.api_key == "sesame"
    assert "sesame" not in repr(server)
