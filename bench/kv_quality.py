"""How much the formats of the KV cache and of the weights change what a model says.

    python -m bench.kv_quality

Every format reads the same text, token by token the true one, and its predictions are compared with
those of the unquantized float32 model computed in plain PyTorch. The KV formats are read with
float32 weights, the weight formats without KV quantization, so each figure has one cause.

The texts are those of `bench/data` (public domain) and a chat that the model itself made up.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import print_json, print_table
from engine.config import BUNDLED_MODEL, EngineConfig
from engine.model.threads import prepare_threads

_WEIGHTS = ("float32", "bfloat16", "float16")
_RANGES = ((0, 512), (512, 2048), (2048, 8192))


class Version(NamedTuple):
    """One column of figures: how a model is loaded, and the kind its result is printed under."""

    kind: str  # "schemes" or "weights"
    name: str
    config: EngineConfig


def main() -> None:
    arguments = _parse_arguments()
    config = EngineConfig(model=arguments.model, dtype="float32", kv_cache_dtype="none")
    prepare_threads(config.cache_path)
    from bench.kv_quality_run import measure  # after the variables that Numba reads once

    versions = [
        Version("schemes", name, _with(config, kv_cache_dtype=name)) for name in arguments.schemes
    ]
    versions += [Version("weights", name, _with(config, dtype=name)) for name in arguments.weights]
    text = arguments.text.read_text(encoding="utf-8") if arguments.text else None
    measured = measure(config, versions, text, arguments.tokens, _RANGES, not arguments.no_chat)
    _print(measured, versions, arguments.model)


def _with(config: EngineConfig, **changes: str) -> EngineConfig:
    settings = {"model": config.model, "dtype": "float32", "kv_cache_dtype": "none", **changes}
    return EngineConfig(**settings)  # type: ignore[arg-type]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=BUNDLED_MODEL)
    parser.add_argument("--schemes", nargs="*", default=["none", "int8", "k8v4", "int4"])
    parser.add_argument("--weights", nargs="*", default=list(_WEIGHTS), choices=_WEIGHTS)
    parser.add_argument("--tokens", type=int, default=8192, help="how much of the text is read")
    parser.add_argument("--text", type=Path, help="a file to read instead of the shipped text")
    parser.add_argument("--no-chat", action="store_true", help="leave the generated chat out")
    return parser.parse_args()


def _print(measured: Mapping[str, Any], versions: Sequence[Version], model: str) -> None:
    places = [("all of the text", "text"), *((name, name) for name in measured["positions"])]
    if "chat" in measured:
        places.append(("chat", "chat"))
    rows = []
    for kind, name, _ in versions:
        for label, place in places:
            groups = measured if place in ("text", "chat") else measured["positions"]
            found = groups[place][kind][name]
            rows.append(
                (
                    f"{'KV' if kind == 'schemes' else 'weights'} {name}",
                    label,
                    f"{found['kld']:.5f}",
                    f"{found['top1']:.1%}",
                    f"{found['perplexity']:.2f}",
                    f"{found['bytes_ratio']:.3f}",
                )
            )
    print_table(("format", "positions", "KLD", "top-1", "perplexity", "bytes / bf16"), rows)
    text = measured["text"]
    rest = {key: value for key, value in measured.items() if key != "text"}
    print_json({"bench": "kv_quality", "model": model, **text, **rest})


if __name__ == "__main__":
    main()
