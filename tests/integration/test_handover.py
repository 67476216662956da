"""A cluster that another scheduler of the same API leaves behind, taken over (docs/migrating-from-kai.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykai.cli.install import install
from pykai.cli.local_cluster import LocalProduct
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.hollow.hollow_node import GpuShape, NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Object, Selection
from pykai.kube.api_resources import POD, POD_GROUP, QUEUE
from pykai.kube.client import HttpApi
from pykai.local.control_plane import ControlPlane
from pykai.objects import names
from tests import builders
from tests.hollow_nodes import hollow_nodes

from .conftest import Eventually
from .whole_product import at_work

NODE, GROUP = "handed-over-0", "f1e2d3c4-0000-4000-8000-000000000001"
RESERVATION = f"gpu-reservation-{NODE}-x7k2p"
GPU = {"limits": {names.NVIDIA_GPU: "1"}}
HALF = {names.GPU_FRACTION: "0.5"}


def half(name: str, queue: str, annotations: dict[str, str] | None = None, **labels: str) -> Object:
    """A pod with half a GPU, labelled as in the oldest releases."""
    metadata = {"name": name, "labels": {names.LEGACY_QUEUE_LABEL: queue, **labels}}
    return {
        "metadata": {**metadata, "annotations": {**HALF, **(annotations or {})}},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "image": "x"}]},
    }


async def leave_behind(api: HttpApi, namespace: str) -> None:
    """A running pod that shares the node's only GPU, its group, and a reservation under a name that we do not give."""
    await api.create(QUEUE, builders.queue(namespace))
    group = {"metadata": {"name": "pg-old"}, "spec": {"queue": namespace, "minMember": 1}}
    await api.create(POD_GROUP, group, namespace)
    labels = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: GROUP}
    container = {"name": "resource-reservation", "image": "x", "resources": GPU}
    holder = {
        "metadata": {"name": RESERVATION, "labels": labels},
        "spec": {"nodeName": NODE, "containers": [container]},
    }
    await api.create(POD, holder, names.RESERVATION_NAMESPACE)
    bound = {names.POD_GROUP_ANNOTATION: "pg-old", names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_FRACTION}
    old = half("old", namespace, bound, **{names.GPU_GROUP_LABEL: GROUP})
    old["spec"]["nodeName"] = NODE
    await api.create(POD, old, namespace)


@pytest.fixture
async def handed_over(
    real_api: HttpApi, local_cluster: ControlPlane, namespace: str, eventually: Eventually
) -> AsyncIterator[HttpApi]:
    """Our components on a cluster in that state."""
    await install(real_api)
    settings = KubeletSettings(stop_seconds=0.1, on_start=on_hollow_nodes(lambda: real_api))
    async with hollow_nodes(real_api, [NodeShape(NODE, GpuShape(1))], settings):
        await leave_behind(real_api, namespace)
        await eventually(lambda: phase(real_api, "old", namespace, "Running"))
        async with at_work(LocalProduct(), real_api, Path(local_cluster.files.kubeconfig)):
            yield real_api


async def phase(api: HttpApi, name: str, namespace: str, wanted: str) -> bool:
    return bool((await api.get(POD.ref(name, namespace), Object))["status"].get("phase") == wanted)


async def reservations(api: HttpApi) -> list[str]:
    found = await api.list(POD, Object, Selection(namespace=names.RESERVATION_NAMESPACE))
    return [each["metadata"]["name"] for each in found.items]


async def test_a_shared_gpu_stays_shared(handed_over: HttpApi, namespace: str, eventually: Eventually) -> None:
    api = handed_over
    before = await api.get(POD.ref("old", namespace), Object)
    await api.create(POD, half("new", namespace), namespace)
    await eventually(lambda: phase(api, "new", namespace, "Running"))
    new = await api.get(POD.ref("new", namespace), Object)
    old = await api.get(POD.ref("old", namespace), Object)
    assert new["metadata"]["labels"][names.GPU_GROUP_LABEL] == GROUP
    assert old["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in old["metadata"]
    assert await reservations(api) == [RESERVATION]
    for name in ("old", "new"):
        await api.delete(POD.ref(name, namespace))

    async def given_back() -> bool:
        return not await reservations(api)

    await eventually(given_back)
