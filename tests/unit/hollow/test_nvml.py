"""The fake NVML has the names and manners of the real binding."""

from __future__ import annotations

import pynvml
import pytest

from pykai.hollow.nvml import FakeNvml, NVMLError
from pykai.hollow.shapes import GpuShape, NodeShape, devices

FUNCTIONS = [name for name in vars(FakeNvml) if name.startswith("nvml")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_are_those_of_the_binding(name: str) -> None:
    assert callable(getattr(pynvml, name))


def test_a_container_sees_its_devices_only() -> None:
    third = devices(NodeShape("n", GpuShape(4)))[2]
    nvml = FakeNvml([third])
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetUUID(handle) == third.uuid
    assert nvml.nvmlDeviceGetName(handle) == third.product
    with pytest.raises(NVMLError):
        nvml.nvmlDeviceGetHandleByIndex(1)


def test_slices_of_one_device_are_one_device() -> None:
    nvml = FakeNvml(devices(NodeShape("n", GpuShape(1, time_slices=4))))
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1


def test_needs_init() -> None:
    with pytest.raises(NVMLError, match="Uninitialized"):
        FakeNvml([]).nvmlDeviceGetCount()
