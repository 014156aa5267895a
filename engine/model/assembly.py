"""Builds storage, attention and runner around a model that is in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from engine.attention.interface import AttentionBackend
from engine.attention.reference import ReferenceAttention
from engine.batch import Runner
from engine.config import EngineConfig, ModelInfo
from engine.errors import ConfigError
from engine.kv.codecs import LeadingInt8Codec
from engine.kv.schemes import KVScheme, kv_scheme
from engine.kv.storage import PagedKVStorage
from engine.kv_quality import QualityTable
from engine.model.attention_hook import layer_windows
from engine.model.experts import use_padded_experts
from engine.model.fingerprint import kv_identity, model_fingerprint
from engine.model.host_memory import num_host_slots
from engine.model.key_bases import learn_key_basis
from engine.model.limits import (
    PoolSize,
    cpu_pool_bytes,
    resolve_eos_token_ids,
    resolve_generation_defaults,
    resolve_max_model_len,
    resolve_vocab_size,
    size_pool,
)
from engine.model.rope import long_rope_length
from engine.model.row_padding import find_row_multiple
from engine.model.runner import ModelRunner
from engine.model.sample_text import NUM_SAMPLE_TOKENS, SAMPLE_TEXT
from engine.model.warm_up import CountingAttention, check_model_runs, full_batch, measure_peak_bytes


class LoadedModel(NamedTuple):
    runner: Runner
    info: ModelInfo
    tokenizer: PreTrainedTokenizerBase


class ModelShape(NamedTuple):
    """What the KV storage has to know of a model."""

    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: PreTrainedConfig) -> ModelShape:
        num_heads = config.num_attention_heads
        return cls(
            num_layers=config.num_hidden_layers,
            num_attention_heads=num_heads,
            num_kv_heads=getattr(config, "num_key_value_heads", None) or num_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        )


@dataclass(frozen=True, slots=True)
class RunnerFactory:
    """Makes storages and runners of one model; their sizes differ between trial and service."""

    model: PreTrainedModel
    scheme: KVScheme
    block_size: int
    backend_name: str
    max_model_len: int
    vocab_size: int
    seed: int
    row_multiple: int = 1

    @property
    def bytes_per_token(self) -> int:
        shape = ModelShape.of(self.model.config)
        return self.scheme.bytes_per_token(
            shape.num_layers, shape.num_kv_heads, shape.head_dim, self.model.dtype
        )

    def make_storage(self, num_blocks: int) -> PagedKVStorage:
        shape = ModelShape.of(self.model.config)
        return PagedKVStorage(
            self.scheme,
            num_layers=shape.num_layers,
            num_blocks=num_blocks,
            block_size=self.block_size,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=self.model.dtype,
            device=self.model.device,
        )

    def make_runner(
        self,
        storage: PagedKVStorage,
        backend: AttentionBackend | None = None,
        num_host_slots: int = 0,
    ) -> ModelRunner:
        return ModelRunner(
            self.model,
            storage,
            backend or make_backend(self.backend_name, storage),
            windows=layer_windows(self.model.config, self.max_model_len),
            vocab_size=self.vocab_size,
            seed=self.seed,
            row_multiple=self.row_multiple,
            num_host_slots=num_host_slots,
        )


def assemble(
    config: EngineConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    report: Callable[[str], None],
) -> LoadedModel:
    """Size the pool, try the model, and describe what came of it.

    Raises:
        ConfigError: the context or the pool that was asked for is not possible.
        ModelLoadError: the model does not run with our attention.
    """
    warning = QualityTable().warning(config.model, config.kv_scheme)
    if warning is not None:
        logging.getLogger(__name__).warning(warning)
        report(warning)
    factory = runner_factory(config, model, tokenizer, report)
    pool = size_pool(
        config,
        max_model_len=factory.max_model_len,
        bytes_per_token=factory.bytes_per_token,
        available_bytes=_available_bytes(config, factory),
    )
    storage = factory.make_storage(pool.num_blocks)
    backend = make_backend(factory.backend_name, storage)
    backend.warm_up(report)
    counting = CountingAttention(backend)
    check_model_runs(
        factory.make_runner(storage, counting),
        counting,
        num_layers=storage.num_layers,
        block_size=config.block_size,
    )
    num_slots = num_host_slots(
        config,
        block_nbytes=storage.block_nbytes,
        is_cpu=model.device.type == "cpu",
        available_bytes=psutil.virtual_memory().available,
    )
    info = _describe(config, factory, tokenizer, directory, pool)
    info = replace(info, num_host_slots=num_slots)
    return LoadedModel(factory.make_runner(storage, backend, num_slots), info, tokenizer)


def runner_factory(
    config: EngineConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    report: Callable[[str], None] = lambda sentence: None,
) -> RunnerFactory:
    """What the settings and the model say of storages and runners, whatever their size.

    Raises:
        ConfigError: the context that was asked for is not possible.
    """
    scheme = kv_scheme(config.kv_scheme)
    factory = RunnerFactory(
        model=model,
        scheme=scheme,
        block_size=config.block_size,
        backend_name=backend_name(config.attention_backend, model.device),
        max_model_len=resolve_max_model_len(model.config, config.max_model_len),
        vocab_size=resolve_vocab_size(model.config, tokenizer),
        seed=config.seed,
        row_multiple=row_multiple(model, scheme),
    )
    if not scheme.learns_key_basis:
        return factory
    report(f"Learning from a sample of text how to store keys in {scheme.name}.")
    return with_key_basis(factory, tokenizer)


def with_key_basis(factory: RunnerFactory, tokenizer: PreTrainedTokenizerBase) -> RunnerFactory:
    """The same with the basis that suits the model's keys on a sample of text."""
    num_tokens = min(NUM_SAMPLE_TOKENS, factory.max_model_len)
    token_ids = tokenizer.encode(SAMPLE_TEXT, add_special_tokens=False)[:num_tokens]
    plain = replace(factory, scheme=kv_scheme("none"))
    storage = plain.make_storage(-(-len(token_ids) // factory.block_size))
    codec = factory.scheme.keys
    assert isinstance(codec, LeadingInt8Codec)
    basis = learn_key_basis(
        factory.model,
        storage,
        token_ids,
        max_model_len=factory.max_model_len,
        num_leading=codec.num_leading(storage.head_dim),
    )
    return replace(factory, scheme=replace(factory.scheme, key_basis=basis))


def row_multiple(model: PreTrainedModel, scheme: KVScheme) -> int:
    """Padding of rows is for what would amplify rounding errors, and for CPUs, where it helps.

    The model's experts are switched with it: they pad their own rows then.
    """
    is_amplified = scheme.is_quantized and model.device.type == "cpu"
    use_padded_experts(model, is_amplified and model.dtype == torch.float32)
    return find_row_multiple(model) if is_amplified else 1


def backend_name(setting: str, device: torch.device) -> str:
    """The attention back end for a device.

    Raises:
        ConfigError: the one asked for does not run on it.
    """
    if setting == "numba" and device.type != "cpu":
        raise ConfigError("--attention-backend numba runs on a CPU only: use auto or reference.")
    if setting == "auto":
        return "numba" if device.type == "cpu" else "reference"
    return setting


def make_backend(name: str, storage: PagedKVStorage) -> AttentionBackend:
    if name == "reference":
        return ReferenceAttention(storage)
    # Imported here: Numba reads its variables once, and needs time.
    from engine.attention.cpu import NumbaAttention

    return NumbaAttention(storage)


def _available_bytes(config: EngineConfig, factory: RunnerFactory) -> int:
    """Memory that the KV pool may take, the model being loaded."""
    if factory.model.device.type == "cpu":
        return cpu_pool_bytes(psutil.virtual_memory().available)
    batch = full_batch(config.max_num_batched_tokens, factory.max_model_len, config.block_size)
    num_blocks = max(max(scheduled.block_ids) for scheduled in batch.requests) + 1
    trial_storage = factory.make_storage(num_blocks)
    peak_bytes = measure_peak_bytes(factory.make_runner(trial_storage), batch)
    total_bytes = torch.cuda.get_device_properties(factory.model.device).total_memory
    usable_bytes = int(total_bytes * config.gpu_memory_utilization)
    return max(0, usable_bytes - peak_bytes + trial_storage.nbytes)


def _describe(
    config: EngineConfig,
    factory: RunnerFactory,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    pool: PoolSize,
) -> ModelInfo:
    model = factory.model
    shape = ModelShape.of(model.config)
    generation = model.generation_config
    fingerprint = model_fingerprint(model)
    return ModelInfo(
        name=config.model,
        architecture=type(model).__name__,
        tokenizer_path=str(directory),
        fingerprint=fingerprint,
        kv_identity=kv_identity(
            fingerprint, factory.scheme, model.device.type, factory.backend_name
        ),
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        weights_bytes=sum(weight.nbytes for weight in model.parameters()),
        num_parameters=sum(weight.numel() for weight in model.parameters()),
        num_layers=shape.num_layers,
        num_attention_heads=shape.num_attention_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=factory.vocab_size,
        max_model_len=pool.max_model_len,
        rope_original_max_len=long_rope_length(model.config),
        eos_token_ids=resolve_eos_token_ids(model.config, generation, tokenizer),
        kv_scheme=factory.scheme.name,
        kv_bytes_per_token=factory.bytes_per_token,
        block_size=factory.block_size,
        num_blocks=pool.num_blocks,
        attention_backend=factory.backend_name,
        generation_defaults=resolve_generation_defaults(generation),
    )
