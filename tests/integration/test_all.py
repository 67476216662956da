"""Every component together on a real control plane, as `kai all` and `kai local` run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import yaml

from pykai.cli.local_cluster import LocalProduct
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.hollow.hollow_node import GpuShape, NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Object, Selection
from pykai.kube.api_resources import POD, QUEUE
from pykai.kube.client import HttpApi
from pykai.kube.errors import NotFound
from pykai.local.control_plane import ControlPlane
from pykai.objects import names
from tests import builders
from tests.builders import queue
from tests.hollow_nodes import hollow_nodes

from .conftest import Eventually, Kubectl
from .whole_product import at_work

RESERVATIONS = Selection(namespace=names.RESERVATION_NAMESPACE)


@pytest.fixture
async def product(real_api: HttpApi, local_cluster: ControlPlane) -> AsyncIterator[None]:
    """All components and one node with two GPUs; what fails closed is unregistered afterwards."""
    whole = LocalProduct()
    settings = KubeletSettings(stop_seconds=0.1, on_start=on_hollow_nodes(whole.connection))
    async with (
        at_work(whole, real_api, Path(local_cluster.files.kubeconfig)),
        hollow_nodes(real_api, [NodeShape("all-0", GpuShape(2))], settings),
    ):
        yield


def pod(name: str, queue: str, gpus: int = 0, annotations: Mapping[str, str] | None = None) -> Object:
    made = builders.pod(name, requests={"gpu": gpus} if gpus else {}, labels={names.QUEUE_LABEL: queue})
    made["metadata"] = {"name": name, "labels": made["metadata"]["labels"], "annotations": dict(annotations or {})}
    return made


async def running(api: HttpApi, namespace: str, *pods: str) -> bool:
    found = {item["metadata"]["name"]: item for item in (await api.list(POD, Object, Selection(namespace))).items}
    return all(name in found and found[name]["status"]["phase"] == "Running" for name in pods)


async def allocated_gpus(api: HttpApi, name: str) -> str | None:
    try:
        status = (await api.get(QUEUE.ref(name), Object)).get("status") or {}
    except NotFound:
        return None
    gpus: str | None = (status.get("allocated") or {}).get(names.NVIDIA_GPU)
    return gpus


@pytest.mark.usefixtures("product")
async def test_from_a_pod_to_the_status_of_its_queues(
    real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    root, team = f"root-{namespace}", f"team-{namespace}"
    half = {names.GPU_FRACTION: "0.5"}
    manifests = [
        queue(root),
        queue(team, root),
        pod("whole", team, 1),
        pod("a", team, 0, half),
        pod("b", team, 0, half),
    ]
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(manifests))
    await eventually(lambda: running(real_api, namespace, "whole", "a", "b"))
    assert len((await real_api.list(POD, Object, RESERVATIONS)).items) == 1, "both halves are of one device"

    async def rolled_up() -> bool:
        return [await allocated_gpus(real_api, name) for name in (root, team)] == ["2", "2"]

    await eventually(rolled_up)
    parent = await real_api.get(QUEUE.ref(root), Object)
    assert parent["status"]["childQueues"] == [team]
    both = pod("both", team, 0, {**half, names.GPU_MEMORY: "2000"})
    with pytest.raises(AssertionError, match="mutually exclusive"):
        await kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(both))
    for name in ("whole", "a", "b"):
        await real_api.delete(POD.ref(name, namespace))

    async def released() -> bool:
        left = (await real_api.list(POD, Object, RESERVATIONS)).items
        return not left and [await allocated_gpus(real_api, name) for name in (root, team)] == [None, None]

    await eventually(released)
