"""GPU figures: what is unknown is None, what fails is told and comes back."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from engine.telemetry.nvml import RETRY_S, NvmlReader, throttle_words
from engine.telemetry.snapshot import GpuSnapshot
from tests.fakes import FakeNvml

GIB = 1 << 30
LOST = "the GPU is lost: it has fallen off the bus or needs a reset"


def make_reader(nvml: FakeNvml, process_id: int = 4242, **environment: str) -> NvmlReader:
    return NvmlReader(lambda: nvml, environment, lambda: frozenset({process_id}))


def test_all_figures_of_a_gpu() -> None:
    nvml = FakeNvml()
    nvml.throttle_bits = 0x4 | 0x20
    nvml.processes = {0: [(4242, 7 * GIB), (17, GIB)]}
    assert make_reader(nvml).read(0.0).gpus == (
        GpuSnapshot(
            index=0,
            uuid="GPU-0aaaaaaa-0000",
            name="NVIDIA RTX 4090",
            is_ours=True,
            utilization_pct=70.0,
            memory_used_bytes=8 * GIB,
            memory_reserved_bytes=GIB // 2,
            memory_total_bytes=24 * GIB,
            own_memory_bytes=7 * GIB,
            num_processes=2,
            temperature_celsius=61.0,
            power_watts=287.5,
            power_limit_watts=450.0,
            sm_clock_mhz=2520,
            memory_clock_mhz=10501,
            throttle_reasons=("power limit", "heat"),
        ),
    )


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("nvmlDeviceGetUtilizationRates", ["utilization_pct"]),
        ("nvmlDeviceGetPowerUsage", ["power_watts"]),
        ("nvmlDeviceGetEnforcedPowerLimit", ["power_limit_watts"]),
        ("nvmlDeviceGetClockInfo", ["sm_clock_mhz", "memory_clock_mhz"]),
        ("nvmlDeviceGetComputeRunningProcesses", ["num_processes", "own_memory_bytes"]),
        (
            "nvmlDeviceGetMemoryInfo",
            ["memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"],
        ),
    ],
)
@pytest.mark.parametrize("code", [3, 4, 13])  # not supported, no permission, no such function
def test_a_figure_that_cannot_be_had_is_none_and_the_others_stay(
    function: str, missing: list[str], code: int
) -> None:
    whole = make_reader(FakeNvml()).read(0.0).gpus[0]
    nvml = FakeNvml()
    nvml.faults[function, 0] = code
    gpu = make_reader(nvml).read(0.0).gpus[0]
    for name in GpuSnapshot.__slots__:
        assert getattr(gpu, name) == (None if name in missing else getattr(whole, name))


def test_an_unsupported_call_is_not_tried_again() -> None:
    nvml = FakeNvml()
    reader = make_reader(nvml)
    reader.read(0.0)
    nvml.faults["nvmlDeviceGetPowerUsage", 0] = pynvml.NVML_ERROR_NOT_SUPPORTED
    reader.read(1.0)
    before = nvml.num_calls
    reader.read(2.0)
    first = nvml.num_calls - before
    del nvml.faults["nvmlDeviceGetPowerUsage", 0]
    assert reader.read(3.0).gpus[0].power_watts is None
    assert nvml.num_calls - before == 2 * first


def test_older_drivers_answer_by_the_older_calls() -> None:
    class OlderNvml(FakeNvml):
        def _answer(self, function: str, gpu: Any = 0, *arguments: Any) -> Any:
            if function == "nvmlDeviceGetMemoryInfo" and arguments:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            older = {"nvmlDeviceGetTemperature": 55, "nvmlDeviceGetCurrentClocksThrottleReasons": 8}
            return older.get(function) or super()._answer(function, gpu, *arguments)

    nvml = OlderNvml()
    nvml.memory = SimpleNamespace(used=GIB, total=2 * GIB)
    nvml.faults["nvmlDeviceGetTemperatureV", 0] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    nvml.faults["nvmlDeviceGetCurrentClocksEventReasons", 0] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    gpu = make_reader(nvml).read(0.0).gpus[0]
    assert (gpu.temperature_celsius, gpu.throttle_reasons) == (55.0, ("hardware slowdown",))
    assert (gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (GIB, None)


def test_memory_beyond_what_there_is_is_unknown() -> None:
    nvml = FakeNvml()
    nvml.memory = SimpleNamespace(used=(1 << 64) - 1, total=24 * GIB, reserved=0)
    assert make_reader(nvml).read(0.0).gpus[0].memory_used_bytes is None


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (None, None),
        (0x0, ()),
        (0x1, ()),  # idle
        (0x1 | 0x4, ("power limit",)),
        (0x40 | 0x80, ("heat (hardware)", "power brake")),
        (1 << 40, ()),  # a bit of a later driver
    ],
)
def test_throttle_reasons_in_words(bits: int | None, words: tuple[str, ...] | None) -> None:
    assert throttle_words(bits) == words


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        ("nvmlDeviceGetHandleByIndex", 15, LOST),
        ("*", 15, LOST),
        ("nvmlDeviceGetMemoryInfo", 15, LOST),
        ("nvmlDeviceGetUtilizationRates", 999, "the driver answers with an unknown error"),
    ],
)
def test_br_53_a_lost_gpu_is_marked_and_the_others_go_on(call: str, code: int, told: str) -> None:
    nvml = FakeNvml(num_gpus=4)
    nvml.faults[call, 2] = code
    gpus = make_reader(nvml).read(0.0).gpus
    assert [gpu.lost for gpu in gpus] == [None, None, told, None]
    assert [gpu.utilization_pct for gpu in gpus] == [70.0, 71.0, None, 73.0]


def test_br_53_a_gpu_lost_later_keeps_its_name_and_comes_back() -> None:
    nvml = FakeNvml(num_gpus=4)
    reader = make_reader(nvml)
    whole = reader.read(0.0).gpus[2]
    nvml.faults["*", 2] = pynvml.NVML_ERROR_GPU_IS_LOST
    lost = reader.read(1.0).gpus[2]
    assert lost == GpuSnapshot(index=2, uuid=whole.uuid, name=whole.name, is_ours=True, lost=LOST)
    nvml.faults.clear()
    assert reader.read(2.0).gpus[2] == whole


def test_br_53_a_lost_gpu_is_logged_once_for_each_time(caplog: pytest.LogCaptureFixture) -> None:
    nvml = FakeNvml(num_gpus=2)
    reader = make_reader(nvml)
    for faults in ({("*", 1): 15}, {("*", 1): 15}, {}, {("*", 1): 15}):
        nvml.faults = dict(faults)
        reader.read(0.0)
    assert caplog.messages == [f"GPU 1 does not answer: {LOST}."] * 2


def test_nvml_is_started_again_once_a_minute_while_no_gpu_answers() -> None:
    nvml = FakeNvml(num_gpus=2)
    reader = make_reader(nvml)
    nvml.faults = {("*", 0): 999, ("*", 1): 999}
    for now_s in range(200):
        assert all(gpu.lost for gpu in reader.read(float(now_s)).gpus)
    assert nvml.num_inits == 4  # at 0, 60, 120 and 180 s


def test_a_container_cut_off_from_its_gpus_is_connected_again() -> None:
    class CutOff(FakeNvml):
        def _call(self, function: str, *arguments: Any) -> Any:
            if self.num_inits == 1 and function.startswith("nvmlDeviceGet") and arguments:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
            return super()._call(function, *arguments)

    nvml = CutOff(num_gpus=2)
    reader = make_reader(nvml)
    assert all(gpu.lost for gpu in reader.read(0.0).gpus)
    assert [gpu.lost for gpu in reader.read(RETRY_S).gpus] == [None, None]
    assert nvml.num_inits == 2


def test_br_54_processes_that_hide_or_vanish_are_only_counted() -> None:
    nvml = FakeNvml()
    nvml.processes = {0: [(0, None), (999_999_999, 5 * GIB), (4242, None)]}
    gpu = make_reader(nvml).read(0.0).gpus[0]
    assert (gpu.num_processes, gpu.own_memory_bytes) == (3, None)


def test_br_54_five_minutes_of_processes_coming_and_going() -> None:
    nvml = FakeNvml()
    reader = make_reader(nvml)
    for second in range(300):
        pids = [(second * 7 % 40 + extra, None) for extra in range(second % 5)]
        nvml.processes = {0: pids}
        assert reader.read(float(second)).gpus[0].num_processes == len(pids)


@pytest.mark.parametrize(
    ("setting", "ours"),
    [
        ("1", [False, True]),
        ("GPU-1aaaaaaa-0000", [False, True]),
        ("GPU-0a", [True, False]),
        ("MIG-77", [False, True]),
        ("", [False, False]),
        ("-1", [False, False]),
    ],
)
def test_br_56_this_servers_gpus_are_marked(setting: str, ours: list[bool]) -> None:
    nvml = FakeNvml(num_gpus=2)
    nvml.mig_uuids = {1: ["MIG-7788"]}
    gpus = make_reader(nvml, CUDA_VISIBLE_DEVICES=setting).read(0.0).gpus
    assert [gpu.is_ours for gpu in gpus] == ours


def test_br_56_memory_of_this_process_tells_more_than_the_setting() -> None:
    nvml = FakeNvml(num_gpus=2)
    nvml.processes = {1: [(4242, GIB)]}
    assert [gpu.is_ours for gpu in make_reader(nvml).read(0.0).gpus] == [False, True]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (12, "No GPU figures: there is no NVIDIA driver on this machine."),
        (9, "No GPU figures: the NVIDIA driver is not loaded."),
        (18, "No GPU figures: the NVIDIA driver was updated; reboot to use it."),
        (13, "No GPU figures: NVML does not start (Function Not Found)."),
    ],
)
def test_br_57_no_driver_is_one_sentence_and_one_log_line(
    code: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    nvml = FakeNvml()
    nvml.faults["nvmlInit", None] = code
    reader = make_reader(nvml)
    with caplog.at_level(logging.INFO):
        readings = [reader.read(float(second)) for second in range(200)]
    assert set(readings) == {((), reason)}
    assert caplog.messages == [reason]
    assert nvml.num_calls == 4  # at 0, 60, 120 and 180 s


def test_br_57_without_pynvml() -> None:
    def load() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'")

    reading = NvmlReader(load, {}).read(0.0)
    assert reading == ((), "No GPU figures: install the package nvidia-ml-py.")


def test_br_57_a_library_that_is_broken_otherwise() -> None:
    def load() -> Any:
        raise OSError("libnvidia-ml.so.1: invalid ELF header")

    reading = NvmlReader(load, {}).read(0.0)
    assert reading.no_gpu_reason == (
        "No GPU figures: NVML does not start (libnvidia-ml.so.1: invalid ELF header)."
    )


def test_a_driver_that_is_loaded_later_is_found() -> None:
    nvml = FakeNvml()
    nvml.faults["nvmlInit", None] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    reader = make_reader(nvml)
    reader.read(0.0)
    nvml.faults.clear()
    assert reader.read(RETRY_S - 1).gpus == ()
    assert len(reader.read(RETRY_S).gpus) == 1


def test_a_driver_without_gpus() -> None:
    assert make_reader(FakeNvml(num_gpus=0)).read(0.0).no_gpu_reason == (
        "No GPU figures: the NVIDIA driver finds no GPU."
    )


def test_the_real_library_on_this_machine_answers_or_says_why() -> None:
    reading = NvmlReader().read(0.0)
    assert bool(reading.gpus) != bool(reading.no_gpu_reason)
