"""What pods request, and how they ask for GPUs."""

from __future__ import annotations

import pytest
from msgspec import json

from pykai.cache.cluster import ClusterCache
from pykai.cache.requests import GpuRequest, gpu_request, pod_amounts, qos_class
from pykai.model.params import SchedulerParams
from pykai.model.pods import GpuKind
from pykai.model.resources import CPU
from pykai.objects import kinds
from pykai.objects.pod_template import ContainerAmounts, decode_containers
from tests import builders

MIG = "nvidia.com/mig-1g.5gb"
OF_MAIN = "nvidia.com/container.main."


@pytest.mark.parametrize(
    ("amounts", "annotations", "expected"),
    [
        ({"cpu": 1.0}, {}, GpuRequest(GpuKind.REGULAR, 0, 0.0, 0)),
        ({"nvidia.com/gpu": 2.0, "amd.com/gpu": 1.0}, {}, GpuRequest(GpuKind.REGULAR, 3, 1.0, 0)),
        ({}, {"gpu-fraction": "0.5"}, GpuRequest(GpuKind.FRACTION, 1, 0.5, 0)),
        ({}, {"gpu-memory": "4000", "gpu-fraction-num-devices": "2"}, GpuRequest(GpuKind.MEMORY, 2, 0.0, 4000)),
        ({}, {f"{OF_MAIN}gpu-memory.request": "1Gi"}, GpuRequest(GpuKind.MEMORY, 1, 0.0, 1024)),
        ({}, {f"{OF_MAIN}gpu-memory.limit": "1000001"}, GpuRequest(GpuKind.MEMORY, 1, 0.0, 1)),
        ({}, {f"{OF_MAIN}gpu-memory.request": "none"}, GpuRequest(GpuKind.REGULAR, 0, 0.0, 0)),
        (
            {},
            {"gpu-fraction": "0.5", f"{OF_MAIN}gpu-memory.request": "1Gi", f"{OF_MAIN}gpu-compute.mode": "sm-sharing"},
            GpuRequest(GpuKind.FRACTION, 1, 0.5, 0, compute_mode=1),
        ),
        ({}, {"gpu-fraction": "1.5"}, GpuRequest(GpuKind.REGULAR, 0, 0.0, 0)),
        ({MIG: 1.0}, {}, GpuRequest(GpuKind.MIG, 0, 0.0, 0)),
        ({MIG: 1.0, "nvidia.com/gpu": 2.0}, {}, GpuRequest(GpuKind.MIG, 2, 1.0, 0)),
        ({MIG: 0.0, "nvidia.com/gpu": 2.0}, {}, GpuRequest(GpuKind.REGULAR, 2, 1.0, 0)),
        ({}, {MIG: "1"}, GpuRequest(GpuKind.REGULAR, 0, 0.0, 0, legacy_mig=True)),
    ],
)
def test_gpu_requests(amounts: dict[str, float], annotations: dict[str, str], expected: GpuRequest) -> None:
    assert gpu_request(amounts, annotations) == expected


def requested(**spec: object) -> ContainerAmounts:
    return decode_containers(kinds.decode(json.encode(spec), kinds.PodSpec))


TWO = [{"name": n, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}} for n in "ab"]


@pytest.mark.parametrize(
    ("whole", "cpu", "memory", "qos"),
    [
        ({}, 2000.0, 2 * 2.0**30, "Burstable"),
        ({"requests": {"cpu": "3"}}, 3000.0, 2 * 2.0**30, "Burstable"),
        ({"requests": {"cpu": "500m", "memory": "4Gi"}}, 500.0, 4 * 2.0**30, "Burstable"),
        ({"limits": {"cpu": "3"}}, 2000.0, 2 * 2.0**30, "Burstable"),
        (
            {"requests": {"cpu": "3", "memory": "3Gi"}, "limits": {"cpu": "3", "memory": "3Gi"}},
            3000.0,
            3 * 2.0**30,
            "Guaranteed",
        ),
    ],
)
def test_resources_of_the_pod_as_a_whole_go_before_those_of_its_containers(
    whole: dict[str, object], cpu: float, memory: float, qos: str
) -> None:
    template = requested(containers=TWO, resources=whole, overhead={"cpu": "1"})
    amounts = pod_amounts(template)
    assert (amounts["cpu"], amounts["memory"]) == (cpu + 1000, memory)
    assert qos_class(template) == qos


def test_a_limit_of_the_pod_counts_where_nothing_else_is_said() -> None:
    assert pod_amounts(requested(containers=[{"name": "a"}], resources={"limits": {"cpu": "3"}}))["cpu"] == 3000.0


@pytest.mark.parametrize(
    ("reason", "allocated", "millicores"),
    [("", "", 2000.0), ("Deferred", "1", 2000.0), ("Deferred", "3", 3000.0), ("Infeasible", "1", 1000.0)],
)
def test_a_pod_that_is_resized_is_charged_the_larger_amount(reason: str, allocated: str, millicores: float) -> None:
    """Neighbours with the same template are not."""
    pods = [builders.pod(name, node="n", requests={"cpu": "2"}) for name in ("before", "resized", "after")]
    if reason:
        pods[1]["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        container = pods[1]["spec"]["containers"][0]["name"]
        pods[1]["status"]["containerStatuses"] = [{"name": container, "allocatedResources": {"cpu": allocated}}]
    cache = ClusterCache(SchedulerParams())
    cache.load([builders.decoded(item) for item in (builders.node("n"), *pods)])
    found = cache.snapshot(1e9).pods
    charged = {name: float(found.of_class(row).request[CPU]) for row, name in enumerate(found.names)}
    assert charged == {"before": 2000.0, "resized": millicores, "after": 2000.0}
