"""Which GPUs the containers of a simulated pod would see: whole ones in order, a share in its container alone."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.hollow.hollow_node import GpuShape, NodeShape, shape_devices
from pykai.hollow.visible_devices import visible_devices

GPUS = shape_devices(NodeShape("n", GpuShape(4)))
TITLES = [f"GPU {device.index} ({device.uuid})" for device in GPUS]
RESERVED = {"group-a": GPUS[2], "group-b": GPUS[3]}
HALF = {"gpu-fraction": "0.5"}
SHARED = {"runai-gpu-group": "group-a"}
NVIDIA = "nvidia.com/container.main.gpu-memory"


def pod(annotations: Any = None, labels: Any = None, init: Any = (), **gpus: int) -> Any:
    containers = [
        {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(count)}} if count else {}}
        for name, count in (gpus or {"main": 0}).items()
    ]
    spec = {"containers": containers, "initContainers": [{"name": name} for name in init]}
    return {"metadata": {"annotations": annotations, "labels": labels}, "spec": spec}


CASES: dict[str, tuple[Any, int, dict[str, str]]] = {
    "without GPUs": (pod(), 0, {"main": "no GPU"}),
    "whole GPUs": (pod(main=2), 2, {"main": f"{TITLES[0]}; {TITLES[1]}"}),
    "two containers with GPUs": (pod(a=1, b=1, c=0), 2, {"a": TITLES[0], "b": TITLES[1], "c": "no GPU"}),
    "a fraction": (pod(HALF, SHARED), 0, {"main": f"{TITLES[2]}, 0.5 of it"}),
    "memory": (pod({"gpu-memory": "2000"}, SHARED), 0, {"main": f"{TITLES[2]}, 2000 MiB of it"}),
    "a share of the first container": (
        pod(HALF, SHARED, main=0, sidecar=0),
        0,
        {"main": f"{TITLES[2]}, 0.5 of it", "sidecar": "no GPU"},
    ),
    "a share of a named container": (
        pod(HALF | {"gpu-fraction-container-name": "work"}, SHARED, main=0, work=0),
        0,
        {"main": "no GPU", "work": f"{TITLES[2]}, 0.5 of it"},
    ),
    "a share of an init container": (
        pod(HALF | {"gpu-fraction-container-type": "InitContainer"}, SHARED, init=("load",)),
        0,
        {"load": f"{TITLES[2]}, 0.5 of it", "main": "no GPU"},
    ),
    "shares of two devices": (
        pod(HALF, {"runai-gpu-group/group-a": "group-a", "runai-gpu-group/group-b": "group-b"}),
        0,
        {"main": f"{TITLES[2]}, 0.5 of it; {TITLES[3]}, 0.5 of it"},
    ),
    "NvFractions": (pod({f"{NVIDIA}.request": "8Gi"}, SHARED), 0, {"main": f"{TITLES[2]}, 8Gi of it"}),
    "NvFractions with a limit": (pod({f"{NVIDIA}.limit": "9Gi"}, SHARED), 0, {"main": f"{TITLES[2]}, 9Gi of it"}),
    "a reservation that is gone": (pod(HALF, {"runai-gpu-group": "other"}), 0, {"main": "no GPU"}),
    "a container that does not exist": (
        pod(HALF | {"gpu-fraction-container-name": "nowhere"}, SHARED),
        0,
        {"main": "no GPU"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_container_sees_its_own_devices(case: str) -> None:
    given, held, expected = CASES[case]
    assert dict(visible_devices(given, GPUS[:held], RESERVED)) == expected
