"""What tests are built from, with defaults for all that a test does not care about."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from engine.config import ModelInfo
from engine.kv.block_moves import BlockMoves, MoveOutcome
from engine.kv.manager import KVCacheManager
from engine.kv.tiers import Tiers
from engine.stats import EngineStats
from engine.telemetry.snapshot import HostSnapshot, MonitorSample


def make_kv_manager(
    *,
    num_blocks: int = 8,
    block_size: int = 4,
    identity: str = "model",
    enable_prefix_caching: bool = True,
    tiers: Tiers | None = None,
) -> KVCacheManager:
    return KVCacheManager(
        num_blocks=num_blocks,
        block_size=block_size,
        identity=identity,
        enable_prefix_caching=enable_prefix_caching,
        tiers=tiers,
    )


def run_moves(kv: KVCacheManager) -> BlockMoves:
    """What the step's beginning does: move what is noted."""
    moves = kv.tiers.take_moves()
    payloads = {spill.slot: b"" for spill in moves.spills}
    kv.tiers.moved(moves, MoveOutcome(payloads))
    return moves


def compute_tokens(
    kv: KVCacheManager,
    request_id: str,
    token_ids: Sequence[int],
    namespace: str = "",
    conversation: str = "",
) -> int:
    """Start a request and run the step that computes all its tokens; returns what was cached."""
    num_cached = kv.start(request_id, token_ids, namespace, conversation)
    assert num_cached is not None
    assert kv.extend(request_id, len(token_ids))
    kv.take_copies()
    run_moves(kv)
    kv.commit(request_id, token_ids, len(token_ids))
    return num_cached


def cache_tokens(
    kv: KVCacheManager, token_ids: Sequence[int], namespace: str = "", conversation: str = ""
) -> tuple[int, ...]:
    """Compute tokens and leave them in the cache; returns the ids of the blocks they are in."""
    compute_tokens(kv, "cached", token_ids, namespace, conversation)
    block_ids = kv.block_ids("cached")
    kv.free("cached", token_ids, len(token_ids))
    return block_ids


def make_engine_stats(**fields: Any) -> EngineStats:
    """A reading of an idle engine that has done nothing yet."""
    values: dict[str, Any] = {
        name: None if "None" in str(kind) or kind == "Percentiles | None" else 0
        for name, kind in EngineStats.__annotations__.items()
    }
    values |= {"block_size": 16, "num_blocks": 64, "num_blocks_free": 64, "max_num_seqs": 8}
    values |= {"num_requests_finished_total": {}, "histograms": {}}
    return EngineStats(**(values | fields))


def make_model_info(**fields: Any) -> ModelInfo:
    values: dict[str, Any] = {
        "name": "tiny",
        "architecture": "LlamaForCausalLM",
        "tokenizer_path": "",
        "fingerprint": "0123",
        "kv_identity": "0123/int8",
        "device": "cpu",
        "dtype": "float32",
        "weights_bytes": 1_000_000,
        "num_parameters": 250_000,
        "num_layers": 2,
        "num_attention_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "vocab_size": 256,
        "max_model_len": 512,
        "eos_token_ids": frozenset({0}),
        "kv_scheme": "int8",
        "kv_bytes_per_token": 144,
        "block_size": 16,
        "num_blocks": 64,
        "attention_backend": "reference",
        "generation_defaults": MappingProxyType({}),
    }
    return ModelInfo(**(values | fields))


def make_monitor_sample(**fields: Any) -> MonitorSample:
    """A sample of a machine without a GPU, while the model is loading."""
    values: dict[str, Any] = {
        "time_s": 1_700_000_000.0,
        "monotonic_s": 0.0,
        "gpus": (),
        "no_gpu_reason": None,
        "host": HostSnapshot(),
        "engine": None,
    }
    return MonitorSample(**(values | fields))
