"""Puts the parts that decide together around a loaded model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from engine.block_keeper import BlockKeeper
from engine.config import EngineConfig, ModelInfo
from engine.core import EngineCore
from engine.disk_cache import DiskCache, open_disk_cache
from engine.kv.block_file import BlockFormat
from engine.kv.manager import KVCacheManager
from engine.kv.tiers import Tiers
from engine.metrics import MetricsRecorder
from engine.rope_regimes import RopeRegimes
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.text.detokenizer import IncrementalDetokenizer
from engine.token_budget import TokenBudget

if TYPE_CHECKING:
    from engine.model.assembly import LoadedModel


_GIB = 1024**3
_MAX_READING_BYTES = 1 * _GIB  # of blocks that are read from disk for those who wait


class Serving(NamedTuple):
    """What a running engine is made of."""

    core: EngineCore
    info: ModelInfo


def make_serving(
    config: EngineConfig, loaded: LoadedModel, clock: Callable[[], float] = time.monotonic
) -> Serving:
    info = loaded.info
    mover = loaded.runner.mover
    block_format = BlockFormat(info.kv_identity, info.block_size, mover.block_nbytes)
    disk = _open_disk(config, block_format)
    tiers = Tiers(
        mover.num_slots,
        disk.tier if disk else None,
        max_reading=max(1, _MAX_READING_BYTES // mover.block_nbytes),
    )
    kv = KVCacheManager(
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        identity=info.kv_identity,
        enable_prefix_caching=config.enable_prefix_caching,
        tiers=tiers,
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
        keeper=BlockKeeper(mover, disk.tier, disk.worker, clock) if disk else None,
    )
    return Serving(core, info)


def _open_disk(config: EngineConfig, block_format: BlockFormat) -> DiskCache | None:
    if config.disk_cache_path is None:
        return None
    max_bytes = int(config.disk_cache_gib * _GIB)
    return open_disk_cache(config.disk_cache_path, block_format, max_bytes)
