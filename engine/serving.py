"""Puts the parts that decide together around a loaded model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from engine.config import EngineConfig, ModelInfo
from engine.core import EngineCore
from engine.kv.manager import KVCacheManager
from engine.metrics import MetricsRecorder
from engine.rope_regimes import RopeRegimes
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.text.detokenizer import IncrementalDetokenizer
from engine.token_budget import TokenBudget

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel


class Serving(NamedTuple):
    """What a running engine is made of."""

    core: EngineCore
    info: ModelInfo


def make_serving(
    config: EngineConfig, loaded: LoadedModel, clock: Callable[[], float] = time.monotonic
) -> Serving:
    info = loaded.info
    kv = KVCacheManager(
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        identity=f"{info.fingerprint}/{info.kv_scheme}",
        enable_prefix_caching=config.enable_prefix_caching,
    )
    budget = TokenBudget(
        target_s=config.step_latency_target_ms / 1000, max_tokens=config.max_num_batched_tokens
    )

    def make_detokenizer(sampling: SamplingParams) -> IncrementalDetokenizer:
        return IncrementalDetokenizer(loaded.tokenizer, stop=sampling.stop)

    core = EngineCore(
        scheduler=Scheduler(
            kv=kv,
            budget=budget,
            max_num_seqs=config.max_num_seqs,
            rope=RopeRegimes(info.rope_original_max_len),
        ),
        runner=loaded.runner,
        make_detokenizer=make_detokenizer,
        metrics=MetricsRecorder(
            max_num_seqs=config.max_num_seqs,
            block_size=info.block_size,
            max_model_len=info.max_model_len,
        ),
        eos_token_ids=info.eos_token_ids,
        clock=clock,
    )
    return Serving(core, info)
