"""CUDA_VISIBLE_DEVICES, case BR-56."""

from __future__ import annotations

import pytest

from engine.telemetry.visible_devices import GpuIdentity, visible_devices

EQUAL = [GpuIdentity(f"GPU-{letter * 8}-1", "RTX 4090") for letter in "abcd"]
MIXED = [GpuIdentity("GPU-aaaa", "RTX 3060"), GpuIdentity("GPU-bbbb", "RTX 4090")]
MIG = [GpuIdentity("GPU-aaaa", "H100", ("MIG-1111", "MIG-2222")), GpuIdentity("GPU-bbbb", "H100")]


@pytest.mark.parametrize(
    ("setting", "visible"),
    [
        ("1", {1}),
        ("2,3", {2, 3}),
        (" 2 , 3 ", {2, 3}),
        ("GPU-cccccccc-1", {2}),
        ("GPU-d", {3}),
        ("GPU-", set()),  # names more than one
        ("GPU-eeee", set()),
        ("", set()),
        ("-1", set()),
        ("0,-1,1", {0}),
        ("9,0", set()),
        ("NoDevFiles", set()),
    ],
)
def test_br_56_which_gpus_a_setting_names(setting: str, visible: set[int]) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": setting}, EQUAL) == visible


def test_without_the_setting_all_are_visible() -> None:
    assert visible_devices({}, EQUAL) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("setting", "visible"),
    [("MIG-2222", {0}), ("MIG-GPU-bbbb/3/0", {1}), ("MIG-3333", set())],
)
def test_br_56_mig_instances_name_their_gpu(setting: str, visible: set[int]) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": setting}, MIG) == visible


def test_br_56_numbers_tell_nothing_where_cuda_orders_different_models_by_speed() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "0"}, MIXED) is None
    by_bus = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_devices(by_bus, MIXED) == {0}
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, MIXED) == {1}
