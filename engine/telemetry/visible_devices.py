"""Which GPUs CUDA_VISIBLE_DEVICES leaves to this process, in NVML's numbering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class GpuIdentity(NamedTuple):
    uuid: str | None
    name: str | None
    mig_uuids: tuple[str, ...] = ()


def visible_devices(
    environment: Mapping[str, str], gpus: Sequence[GpuIdentity]
) -> frozenset[int] | None:
    """Indices of the visible GPUs; None where numbers alone cannot tell.

    CUDA counts the fastest GPU first, NVML by bus address: with different models in one machine a
    number names the same GPU in both only under CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    setting = environment.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return frozenset(range(len(gpus)))
    entries = [entry.strip() for entry in setting.split(",")]
    if any(entry.isdigit() for entry in entries) and not _same_order(environment, gpus):
        return None
    visible: set[int] = set()
    for entry in entries:
        index = _index(entry, gpus)
        if index is None:  # CUDA ignores an unknown entry and all after it
            break
        visible.add(index)
    return frozenset(visible)


def _same_order(environment: Mapping[str, str], gpus: Sequence[GpuIdentity]) -> bool:
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return by_bus or len({gpu.name for gpu in gpus}) <= 1


def _index(entry: str, gpus: Sequence[GpuIdentity]) -> int | None:
    if entry.isdigit():
        return int(entry) if int(entry) < len(gpus) else None
    if entry.startswith("MIG-GPU-"):  # the older form: MIG-GPU-<uuid>/<instance>/<instance>
        entry = entry.removeprefix("MIG-").split("/")[0]
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    matches = [
        index
        for index, gpu in enumerate(gpus)
        if any(uuid and uuid.startswith(entry) for uuid in (gpu.uuid, *gpu.mig_uuids))
    ]
    return matches[0] if len(matches) == 1 else None
