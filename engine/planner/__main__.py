"""What fits on a GPU, from a model's configuration alone: no weights, no GPU.

    python -m engine.planner microsoft/Phi-mini-MoE-instruct --gpu-gib 24 --concurrency 16

MODEL is a hub id (of which config.json alone is fetched), a directory, a configuration's file, a
.gguf file or `bundled`. The options with Hearth's own names mean what they mean to Hearth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.errors import ConfigError, ModelLoadError
from engine.planner.plan import GIB, MemoryWishes, plan_memory
from engine.planner.text import plan_json, plan_text

if TYPE_CHECKING:
    from engine.model.outline import ModelOutline

_MAX_WISH = 10**9


def main(arguments: Sequence[str] | None = None) -> int:
    """0: planned (whether it fits or not), 1: the model cannot be read, 2: an option is wrong."""
    options = _parser().parse_args(arguments)
    try:
        config = _engine_config(options)
        wishes = _wishes(options, config)
        outline = _read(config)
        if wishes.context is not None and wishes.context > outline.max_model_len:
            raise ConfigError(
                f"--context {wishes.context} is more than the {outline.max_model_len:,} tokens "
                "that Hearth serves of this model: ask for less."
            )
        plan = plan_memory(outline, wishes)
    except (ConfigError, ModelLoadError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, ConfigError) else 1
    print(plan_json(plan) if options.json else plan_text(plan))  # noqa: T201
    return 0


def _read(config: EngineConfig) -> ModelOutline:
    # Imported here: it takes seconds, and a wrong option shall not wait for them.
    from engine.model.outline_reader import read_outline

    return read_outline(config)


def _engine_config(options: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        model=options.model,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype,
        block_size=options.block_size,
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs,
    )


def _wishes(options: argparse.Namespace, config: EngineConfig) -> MemoryWishes:
    for name in ("gpu_gib", "context", "concurrency"):
        value = getattr(options, name)
        if value is not None and not 0 < value < _MAX_WISH:
            raise ConfigError(
                f"--{name.replace('_', '-')} must be above 0 and below {_MAX_WISH:,}, not {value}."
            )
    return MemoryWishes(
        gpu_bytes=int(options.gpu_gib * GIB),
        gpu_memory_utilization=config.gpu_memory_utilization,
        kv_format=config.kv_scheme,
        block_size=config.block_size,
        context=options.context,
        concurrency=options.concurrency,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_num_seqs=config.max_num_seqs,
    )


def _parser() -> argparse.ArgumentParser:
    usual = EngineConfig()
    parser = argparse.ArgumentParser(
        prog="python -m engine.planner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", nargs="?", default=usual.model)
    add("--gpu-gib", type=float, default=24.0, metavar="X", help="memory of the GPU [24]")
    add("--context", type=int, metavar="N", help="tokens of a conversation [all the model allows]")
    add("--concurrency", type=int, default=1, metavar="N", help="conversations at once [1]")
    add("--json", action="store_true", help="one line of JSON instead of tables")
    add("--dtype", default=usual.dtype, choices=("auto", "float32", "bfloat16", "float16"))
    add("--kv-cache-dtype", default=usual.kv_cache_dtype, metavar="TEXT")
    add("--block-size", type=int, default=usual.block_size, metavar="N")
    add("--gpu-memory-utilization", type=float, default=usual.gpu_memory_utilization, metavar="X")
    add("--max-num-batched-tokens", type=int, default=usual.max_num_batched_tokens, metavar="N")
    add("--max-num-seqs", type=int, default=usual.max_num_seqs, metavar="N")
    add("--revision", metavar="TEXT", help="of a hub model")
    add("--trust-remote-code", action="store_true", help="run the model's own Python code")
    return parser


if __name__ == "__main__":
    sys.exit(main())
