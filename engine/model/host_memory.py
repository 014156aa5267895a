"""How much host memory evicted blocks get."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.errors import ConfigError

GIB = 1024**3
_GPU_DEFAULT_BYTES = 4 * GIB
_CPU_DEFAULT_BYTES = 1 * GIB  # where there is a disk cache, whose blocks pass through it
_MAX_SHARE = 0.25  # of the free memory, unless more is asked for


def num_host_slots(
    config: EngineConfig, *, block_nbytes: int, is_cpu: bool, available_bytes: int
) -> int:
    """How many blocks fit `--swap-space`, or what is sensible where nothing was asked for.

    Raises:
        ConfigError: more was asked for than the machine has free.
    """
    if not config.enable_prefix_caching:
        return 0
    if config.swap_space is None:
        return _default_bytes(config, is_cpu, available_bytes) // block_nbytes
    asked_bytes = int(config.swap_space * GIB)
    if asked_bytes > available_bytes:
        raise ConfigError(
            f"--swap-space {config.swap_space:g} is more than the {available_bytes / GIB:.1f} GiB "
            "of memory that are free: use less."
        )
    return asked_bytes // block_nbytes


def _default_bytes(config: EngineConfig, is_cpu: bool, available_bytes: int) -> int:
    """A CPU's pool is in the same memory already."""
    most = int(available_bytes * _MAX_SHARE)
    if not is_cpu:
        return min(_GPU_DEFAULT_BYTES, most)
    return min(_CPU_DEFAULT_BYTES, most) if config.disk_cache is not None else 0
