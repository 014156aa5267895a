"""The engine's settings, and what is learned of a model when it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError
from engine.kv_quality import QualityTable
from engine.settings import setting

BUNDLED_MODEL = "bundled"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One flat, validated set of settings. Names are vLLM's where it has one.

    Raises:
        ConfigError: a value is wrong, or asks for a part that is not there yet.
    """

    model: str = setting(
        BUNDLED_MODEL,
        "hub id, directory or .gguf file; 'bundled' is the small model that ships with Hearth",
    )
    revision: str | None = setting(
        None, "branch, tag or commit of a model from the hub; default: its main branch"
    )
    trust_remote_code: bool = setting(
        False, "run Python code that a model brings along, as whoever started Hearth: read it first"
    )
    dtype: str = setting(
        "auto",
        "type of weights and activations; auto: float32 on a CPU, the model's own on a GPU",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    quantization: str = setting("auto", "format of the weights; auto is none for now")
    kv_cache_dtype: str = setting(
        "auto",
        "format of the KV cache: int8, k8v4 (8-bit keys, 4-bit values), int4, or none for the "
        "model's own type; auto: the smallest that was measured to be good for the model, or int8",
    )
    block_size: int = setting(16, "tokens in a KV block: a power of two from 8 to 512")
    max_model_len: int | None = setting(
        None, "longest context in tokens; default: what the model was trained for"
    )
    max_num_seqs: int = setting(32, "requests that run at the same time")
    max_num_batched_tokens: int = setting(1024, "most tokens computed in one step")
    step_latency_target_ms: int = setting(
        300, "prompt chunks are sized so that a step stays under this while others are decoding"
    )
    gpu_memory_utilization: float = setting(
        0.9, "share of the GPU's memory for weights, work space and KV cache"
    )
    kv_cache_memory_bytes: int | None = setting(
        None,
        "size of the KV cache; default: from the free memory (on a CPU a quarter, 4 GiB at most)",
    )
    num_gpu_blocks_override: int | None = setting(
        None, "exact number of KV blocks, instead of a size in bytes"
    )
    swap_space: float | None = setting(
        None,
        "GiB of host memory for evicted blocks; default: 4 beside a GPU, at most a quarter of what "
        "is free; 0 on a CPU, or 1 with --disk-cache",
    )
    disk_cache: Path | None = setting(
        None,
        "directory for blocks evicted from host memory, and for the warmest ones at a clean stop; "
        "one server at a time uses it; default: none",
    )
    disk_cache_gib: float = setting(16.0, "GiB of blocks that --disk-cache may hold")
    enable_prefix_caching: bool = setting(True, "reuse KV of equal token prefixes")
    max_queued_requests: int = setting(256, "waiting requests in all; more are refused with 429")
    max_queued_requests_per_user: int = setting(32, "waiting requests of one known user")
    request_timeout_s: float = setting(600.0, "a request is ended after this many seconds")
    engine_hang_timeout_s: float = setting(
        120.0, "with work at hand and no sign of life for so long, the engine is started again"
    )
    attention_backend: str = setting(
        "auto",
        "auto, reference (plain PyTorch) or numba (CPU)",
        choices=("auto", "reference", "numba"),
    )
    seed: int = setting(0, "start of the random streams of requests that bring no seed")
    cache_dir: Path = setting(
        Path("~/.cache/hearth"), "where the converted bundled model and compiled kernels are kept"
    )

    def __post_init__(self) -> None:
        _require(
            self.quantization in {"auto", "none"},
            f"--quantization {self.quantization} is not there yet: use auto or none.",
        )
        _require(
            self.kv_cache_dtype in {"auto", "none", "int8", "k8v4", "int4"},
            f"There is no --kv-cache-dtype {self.kv_cache_dtype}: use auto, int8, k8v4, int4 or "
            "none.",
        )
        self._check_tiers()
        _require(
            self.block_size in {8, 16, 32, 64, 128, 256, 512},
            f"--block-size must be a power of two from 8 to 512, not {self.block_size}.",
        )
        _require(
            0.05 <= self.gpu_memory_utilization <= 1.0,
            f"--gpu-memory-utilization must be from 0.05 to 1, not {self.gpu_memory_utilization}.",
        )
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            option = "--" + name.replace("_", "-")
            _require(value is None or value >= 1, f"{option} must be at least 1, not {value}.")
        _require(
            self.engine_hang_timeout_s > 0,
            f"--engine-hang-timeout-s must be above 0, not {self.engine_hang_timeout_s:g}.",
        )
        _require(
            self.max_num_batched_tokens >= self.max_num_seqs,
            "--max-num-batched-tokens must be at least --max-num-seqs: every running request "
            "takes one token a step.",
        )

    def _check_tiers(self) -> None:
        _require(
            self.swap_space is None or self.swap_space >= 0,
            f"--swap-space must be at least 0, not {self.swap_space or 0:g}.",
        )
        _require(
            self.disk_cache is None or self.disk_cache != Path(),
            "--disk-cache is empty: name a directory, or leave it out.",
        )
        _require(
            self.disk_cache is None or self.swap_space != 0,
            "--disk-cache needs host memory, through which its blocks pass: leave --swap-space "
            "out, or make it larger than 0.",
        )
        _require(
            self.enable_prefix_caching or not (self.swap_space or self.disk_cache),
            "--swap-space and --disk-cache keep blocks for reuse: do not use them with "
            "--no-enable-prefix-caching.",
        )
        _require(
            self.disk_cache_gib > 0,
            f"--disk-cache-gib must be above 0, not {self.disk_cache_gib:g}.",
        )

    @property
    def disk_cache_path(self) -> Path | None:
        return None if self.disk_cache is None else self.disk_cache.expanduser()

    @property
    def kv_scheme(self) -> str:
        if self.kv_cache_dtype == "auto":
            return QualityTable().choose(self.model)
        return self.kv_cache_dtype

    @property
    def cache_path(self) -> Path:
        return self.cache_dir.expanduser()


_AT_LEAST_ONE = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "step_latency_target_ms",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "max_queued_requests",
    "max_queued_requests_per_user",
    "request_timeout_s",
)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What loading taught us. Never patched into EngineConfig."""

    name: str  # as asked for: "bundled", a hub id, a path
    architecture: str
    tokenizer_path: str  # directory with the tokenizer's files and the chat template
    tokenizer_runs_code: bool = False  # the model's own, as --trust-remote-code allows
    fingerprint: str  # of config and weights
    kv_identity: str  # of all that stored K and V depend on; part of every block hash
    device: str
    dtype: str
    weights_bytes: int
    num_parameters: int
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int  # ids below this may be sampled
    max_model_len: int
    rope_original_max_len: int | None = None  # longer sequences have another rotary table
    eos_token_ids: frozenset[int]
    kv_scheme: str
    kv_bytes_per_token: int
    block_size: int
    num_blocks: int
    attention_backend: str
    generation_defaults: Mapping[str, int | float]  # temperature, top_k, ... from generation_config
    num_host_slots: int = 0  # blocks in host memory
