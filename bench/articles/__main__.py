"""What two articles did and claim, done again on whatever machine and model is at hand.

    python -m bench.articles --quick
    python -m bench.articles --model microsoft/Phi-3-mini-128k-instruct

A: "GPU use raised by batch size and KV cache" (Phi-mini-MoE behind a Gradio page). B: "caching
against repeated work" (Phi-3-mini-128k on vLLM). "Before" is `generate`, one request after the
other, or every prompt computed anew; "after" is Hearth. Each table ends with what was claimed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from bench.articles import (
    batches,
    blocks,
    conversation,
    hit_rate,
    lengths,
    long_text,
    memory,
    subjects,
)
from bench.articles.runs import Hearth, Run
from bench.articles.scale import Scale, scale_of
from bench.articles.section import Section, print_section
from bench.engines import running_engine
from bench.report import print_json
from engine import EngineConfig
from engine.model.threads import prepare_threads

# By what they need: nothing, `generate` first and then an engine, an engine, engines of their own.
_COMPARED: Mapping[str, Any] = {"batches": batches, "long": long_text, "subjects": subjects}
_ON_ONE_ENGINE: Mapping[str, Any] = {"lengths": lengths, "hit_rate": hit_rate}
_ON_THEIR_OWN: Mapping[str, Any] = {
    "memory": memory,
    "conversation": conversation,
    "blocks": blocks,
}
NAMES = (*_COMPARED, *_ON_ONE_ENGINE, *_ON_THEIR_OWN)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    # Before torch is imported: on a busy machine `generate` must not suffer from spinning threads.
    prepare_threads(EngineConfig().cache_path)
    wanted = options.only or list(NAMES)
    figures = run(scale_of(options), wanted)
    print()
    print_json({"model": options.model, "quick": options.quick, "experiments": figures})


def run(scale: Scale, wanted: Sequence[str]) -> dict[str, Any]:
    """Print the tables of these experiments; returns their figures by name."""
    figures: dict[str, Any] = {}

    def keep(name: str, section: Section) -> None:
        print_section(section)
        figures[name] = section.figures

    compared = [name for name in _COMPARED if name in wanted]
    earlier = _run_before(scale, compared) if compared else {}
    on_one = [name for name in _ON_ONE_ENGINE if name in wanted]
    if compared or on_one:
        with running_engine(scale.engine_config()) as engine:
            hearth = Hearth(engine)
            for name in compared:
                keep(name, _COMPARED[name].measure(hearth, scale, earlier[name]))
            for name in on_one:
                keep(name, _ON_ONE_ENGINE[name].measure(hearth, scale))
    for name, experiment in _ON_THEIR_OWN.items():
        if name in wanted:
            keep(name, experiment.measure(scale))
    return figures


def _run_before(scale: Scale, names: Sequence[str]) -> dict[str, Run]:
    from bench.articles.baseline import sequential_model

    print("Measuring `generate` first: a GPU has no room for it beside an engine.")
    with sequential_model(scale.engine_config()) as model:
        return {name: _COMPARED[name].before(model, scale) for name in names}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Scale()
    parser.add_argument("--model", default=usual.model)
    parser.add_argument("--kv-cache-dtype", default=usual.kv_cache_dtype)
    parser.add_argument("--gpu-gib", type=float, default=usual.gpu_gib, help="of the memory table")
    parser.add_argument("--quick", action="store_true", help="small enough for two CPU cores")
    parser.add_argument("--tokens", type=int, help="no reply longer than this")
    parser.add_argument("--only", action="append", choices=NAMES, help="may be given repeatedly")
    return parser


if __name__ == "__main__":
    main()
