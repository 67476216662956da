"""How a pod asks for GPUs."""

from __future__ import annotations

import pytest

from pykai.cache.requests import GpuRequest, gpu_request
from pykai.model.pods import GpuKind

MIG = "nvidia.com/mig-1g.5gb"


@pytest.mark.parametrize(
    ("amounts", "annotations", "expected"),
    [
        ({"cpu": 1.0}, {}, GpuRequest(GpuKind.REGULAR, 0, 0.0, 0)),
        ({"nvidia.com/gpu": 2.0, "amd.com/gpu": 1.0}, {}, GpuRequest(GpuKind.REGULAR, 3, 1.0, 0)),
        ({}, {"gpu-fraction": "0.5"}, GpuRequest(GpuKind.FRACTION, 1, 0.5, 0)),
        ({}, {"gpu-memory": "4000", "gpu-fraction-num-devices": "2"}, GpuRequest(GpuKind.MEMORY, 2, 0.0, 4000)),
        ({}, {"gpu-fraction": "1.5"}, GpuRequest(GpuKind.REGULAR, 0, 0.0, 0)),
        ({MIG: 1.0}, {}, GpuRequest(GpuKind.MIG, 0, 0.0, 0)),
        ({MIG: 1.0, "nvidia.com/gpu": 2.0}, {}, GpuRequest(GpuKind.MIG, 2, 1.0, 0)),
        ({MIG: 0.0, "nvidia.com/gpu": 2.0}, {}, GpuRequest(GpuKind.REGULAR, 2, 1.0, 0)),
        ({}, {MIG: "1"}, GpuRequest(GpuKind.REGULAR, 0, 0.0, 0, legacy_mig=True)),
    ],
)
def test_gpu_requests(amounts: dict[str, float], annotations: dict[str, str], expected: GpuRequest) -> None:
    assert gpu_request(amounts, annotations) == expected
