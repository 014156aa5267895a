"""GPU figures through NVML. The only file that knows pynvml.

A figure the driver does not offer is None; no driver and a lost GPU are states that are told, never
exceptions. One thread owns a reader: NVML calls may hang when a GPU falls off the bus.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from engine.telemetry.process_tree import ProcessTree
from engine.telemetry.snapshot import GpuReading, GpuSnapshot
from engine.telemetry.visible_devices import GpuIdentity, visible_devices

RETRY_S = 60.0

_GPU_IS_LOST = 15
_UNANSWERED = {
    1: "NVML has to be started again",
    _GPU_IS_LOST: "the GPU is lost: it has fallen off the bus or needs a reset",
    16: "the GPU needs a reset",
    999: "the driver answers with an unknown error",
}
_NEVER = {3: "not supported", 13: "function not found"}  # no use asking again

_INIT_FAILURES = {
    4: "No GPU figures: this user may not use the NVIDIA driver.",
    9: "No GPU figures: the NVIDIA driver is not loaded.",
    12: "No GPU figures: there is no NVIDIA driver on this machine.",
    18: "No GPU figures: the NVIDIA driver was updated; reboot to use it.",
}
_MISSING_PACKAGE = "No GPU figures: install the package nvidia-ml-py."
_NO_DEVICE = "No GPU figures: the NVIDIA driver finds no GPU."

_THROTTLE_WORDS = {  # bit 0x1 is an idle GPU, which is not throttled
    0x2: "clocks set by a person",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "clocks tied to another GPU",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability limit",
}


def import_pynvml() -> Any:
    return importlib.import_module("pynvml")


class NvmlReader:
    """Reads all GPUs; opens NVML when it can and tries again each minute when it cannot."""

    def __init__(
        self,
        load: Callable[[], Any] = import_pynvml,
        environment: Mapping[str, str] = os.environ,
        process_ids: Callable[[], frozenset[int]] | None = None,
    ) -> None:
        self._load = load
        self._environment = environment
        self._process_ids = process_ids or ProcessTree().process_ids
        self._nvml: Any = None
        self._devices: tuple[_Device, ...] = ()
        self._reason: str | None = None
        self._retry_at_s: float | None = None  # None: never tried
        self._logged: set[str] = set()

    def read(self, now_s: float) -> GpuReading:
        if self._wants_open() and (self._retry_at_s is None or now_s >= self._retry_at_s):
            self._retry_at_s = now_s + RETRY_S
            self._open()
        process_ids = self._process_ids() if self._devices else frozenset()
        gpus = tuple(device.read(process_ids) for device in self._devices)
        self._log_lost(gpus)
        return GpuReading(self._mark_ours(gpus), None if gpus else self._reason)

    def close(self) -> None:
        if self._nvml is not None:
            self._shutdown()

    def _wants_open(self) -> bool:
        return all(device.is_lost for device in self._devices)

    def _open(self) -> None:
        """Where every GPU is lost NVML itself may be at fault, so an open one is closed first."""
        try:
            nvml = self._nvml or self._load()
            if self._nvml is not None:
                self._shutdown()
            nvml.nvmlInit()
            self._nvml = nvml
            num_devices = nvml.nvmlDeviceGetCount()
            self._reason = None if num_devices else _NO_DEVICE
            if num_devices != len(self._devices):
                self._devices = tuple(_Device(nvml, index) for index in range(num_devices))
        except Exception as error:  # whatever is wrong with a driver, the server goes on
            self._devices = ()
            self._reason = _init_failure(error)
        if self._reason is not None:
            self._log_once(self._reason)

    def _shutdown(self) -> None:
        for device in self._devices:
            device.detach()
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self._log_once(f"NVML did not shut down: {error}.")
        self._nvml = None

    def _mark_ours(self, gpus: tuple[GpuSnapshot, ...]) -> tuple[GpuSnapshot, ...]:
        """Those this process has memory on; before it has any, those CUDA lets it see."""
        used = frozenset(gpu.index for gpu in gpus if gpu.own_memory_bytes is not None)
        ours = used or visible_devices(
            self._environment, [device.identity for device in self._devices]
        )
        return tuple(
            replace(gpu, is_ours=None if ours is None else gpu.index in ours) for gpu in gpus
        )

    def _log_lost(self, gpus: tuple[GpuSnapshot, ...]) -> None:
        for gpu in gpus:
            message = f"GPU {gpu.index} does not answer: "
            if gpu.lost is not None:
                self._log_once(f"{message}{gpu.lost}.")
            else:  # tell it again if it is lost again
                self._logged = {line for line in self._logged if not line.startswith(message)}

    def _log_once(self, line: str) -> None:
        if line not in self._logged:
            self._logged.add(line)
            logging.getLogger(__name__).warning(line)


class _Device:
    """One GPU: its handle, who it is, and which calls its driver does not offer."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.identity = GpuIdentity(None, None)
        self.is_lost = False
        self._nvml = nvml
        self._index = index
        self._handle: Any = None
        self._unsupported: set[tuple[Any, ...]] = set()

    def detach(self) -> None:
        self._handle = None

    def read(self, process_ids: frozenset[int]) -> GpuSnapshot:
        try:
            if self._handle is None:
                self._attach()
            snapshot = self._read_figures(process_ids)
        except self._nvml.NVMLError as error:
            self.detach()
            self.is_lost = True
            return replace(self._snapshot(), lost=_UNANSWERED.get(error.value, str(error)))
        self.is_lost = False
        return snapshot

    def _attach(self) -> None:
        self._handle = self._nvml.nvmlDeviceGetHandleByIndex(self._index)
        self._unsupported.clear()
        self.identity = GpuIdentity(
            uuid=self._ask("nvmlDeviceGetUUID"),
            name=self._ask("nvmlDeviceGetName"),
            mig_uuids=self._mig_uuids(),
        )

    def _mig_uuids(self) -> tuple[str, ...]:
        mode = self._ask("nvmlDeviceGetMigMode")
        if not mode or not mode[0]:
            return ()
        uuids = []
        for index in range(self._ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            instance = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
            if instance is not None:
                uuids.append(self._ask_of(instance, "nvmlDeviceGetUUID"))
        return tuple(uuid for uuid in uuids if uuid is not None)

    def _snapshot(self) -> GpuSnapshot:
        return GpuSnapshot(index=self._index, uuid=self.identity.uuid, name=self.identity.name)

    def _read_figures(self, process_ids: frozenset[int]) -> GpuSnapshot:
        nvml = self._nvml
        utilization = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._memory()
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        reasons = self._first(
            "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        )
        return replace(
            self._snapshot(),
            utilization_pct=None if utilization is None else float(utilization.gpu),
            memory_used_bytes=None if memory is None else memory.used,
            memory_reserved_bytes=getattr(memory, "reserved", None),
            memory_total_bytes=None if memory is None else memory.total,
            own_memory_bytes=_own_memory(processes, process_ids),
            num_processes=None if processes is None else len(processes),
            temperature_celsius=self._temperature(),
            power_watts=_watts(self._ask("nvmlDeviceGetPowerUsage")),
            power_limit_watts=_watts(self._ask("nvmlDeviceGetEnforcedPowerLimit")),
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            throttle_reasons=throttle_words(reasons),
        )

    def _memory(self) -> Any:
        """The second version keeps what the driver reserves apart from what is used."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        memory = self._ask("nvmlDeviceGetMemoryInfo", version) if version else None
        memory = memory or self._ask("nvmlDeviceGetMemoryInfo")
        return memory if memory is not None and 0 <= memory.used <= memory.total else None

    def _temperature(self) -> float | None:
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        celsius = self._first("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", sensor)
        return None if celsius is None else float(celsius)

    def _first(self, newer: str, older: str, *arguments: Any) -> Any:
        value = self._ask(newer, *arguments)
        return self._ask(older, *arguments) if value is None else value

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._ask_of(self._handle, function, *arguments)

    def _ask_of(self, handle: Any, function: str, *arguments: Any) -> Any:
        """The value, or None where this GPU or driver has none. Raises when the GPU is lost."""
        call = (function, *arguments)
        if call in self._unsupported:
            return None
        try:
            return getattr(self._nvml, function)(handle, *arguments)
        except AttributeError:  # an older pynvml
            self._unsupported.add(call)
        except self._nvml.NVMLError as error:
            if error.value in _UNANSWERED:
                raise
            if error.value in _NEVER:
                self._unsupported.add(call)
        return None


def throttle_words(reasons: int | None) -> tuple[str, ...] | None:
    if reasons is None:
        return None
    return tuple(word for bit, word in _THROTTLE_WORDS.items() if reasons & bit)


def _own_memory(processes: Any, process_ids: frozenset[int]) -> int | None:
    """Processes may hide their memory (None), and pids may be another namespace's."""
    own = [entry.usedGpuMemory for entry in processes or () if entry.pid in process_ids]
    known = [num_bytes for num_bytes in own if num_bytes is not None]
    return sum(known) if known else None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _init_failure(error: Exception) -> str:
    if isinstance(error, ImportError):
        return _MISSING_PACKAGE
    known = _INIT_FAILURES.get(getattr(error, "value", -1))
    return known or f"No GPU figures: NVML does not start ({error})."
