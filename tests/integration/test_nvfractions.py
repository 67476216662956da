"""GPU sharing mode NvFractions on a real control plane: the examples of the guide, from creation to bound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pykai.cli.local_cluster import LocalProduct
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.hollow.hollow_node import GpuShape, NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Object, Patch, Selection
from pykai.kube.api_resources import NODE, POD
from pykai.kube.client import HttpApi
from pykai.kube.errors import Forbidden
from pykai.local.control_plane import ControlPlane
from pykai.objects import names
from tests import builders
from tests.hollow_nodes import hollow_nodes

from .conftest import Eventually, Kubectl
from .whole_product import at_work

EXAMPLES = Path(__file__).parents[2] / "examples" / "gpu-sharing" / "nvfractions"
KEY = "nvidia.com/container."
NODE_NAME = "fractions-0"
READY = names.FRACTIONS_READY[0]


@pytest.fixture
async def product(real_api: HttpApi, local_cluster: ControlPlane) -> AsyncIterator[None]:
    """All components in the mode and one node with two GPUs of 40,000 MiB."""
    whole = LocalProduct(names.NVFRACTIONS)
    settings = KubeletSettings(stop_seconds=0.1, on_start=on_hollow_nodes(whole.connection))
    async with (
        at_work(whole, real_api, Path(local_cluster.files.kubeconfig)),
        hollow_nodes(real_api, [NodeShape(NODE_NAME, GpuShape(2, 40000))], settings),
    ):
        yield


def pod(name: str, request: str, mode: str = "") -> Object:
    made = builders.pod(name, labels={names.QUEUE_LABEL: "default-queue"})
    keys = {f"{KEY}main.gpu-memory.request": request, **({f"{KEY}main.gpu-compute.mode": mode} if mode else {})}
    return {**made, "metadata": {"name": name, "labels": made["metadata"]["labels"], "annotations": keys}}


async def bound(api: HttpApi, namespace: str, count: int) -> dict[str, Object] | None:
    items = (await api.list(POD, Object, Selection(namespace))).items
    found = {item["metadata"]["name"]: item for item in items}
    staying = [item for item in items if not item["metadata"].get("deletionTimestamp")]
    done = [item for item in staying if item["spec"].get("nodeName") and item["status"]["phase"] == "Running"]
    return found if len(done) == count else None


async def why_waiting(api: HttpApi, namespace: str, name: str) -> str:
    rows = (await api.get(POD.ref(name, namespace), Object))["status"].get("conditions") or ()
    return next((row["message"] for row in rows if row["type"] == "PodScheduled" and row["status"] == "False"), "")


def device(item: Object) -> tuple[str, str]:
    """Request and devices that the binder wrote."""
    notes = item["metadata"]["annotations"]
    (container,) = {key.removeprefix(KEY).split(".")[0] for key in notes if key.startswith(KEY)}
    return notes[f"{KEY}{container}.gpu-memory.request"], notes[f"{KEY}{container}.gpus.devices"]


async def test_the_examples_of_the_guide(
    product: None, real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    files = sorted(file for file in EXAMPLES.glob("*.yaml") if file.name != "two-devices.yaml")
    assert len(files) == 6
    for file in files:
        await kubectl("apply", "-n", namespace, "-f", str(file))
    found = await eventually(lambda: bound(real_api, namespace, len(files)))
    said = {name: device(item) for name, item in found.items()}
    assert {name: request for name, (request, _) in said.items()} == {
        "nvfractions-memory": "8Gi",
        "nvfractions-limit": "4Gi",
        "nvfractions-request-and-limit": "4096Mi",
        "nvfractions-fraction": "10000Mi",
        "nvfractions-sm-sharing": "8Gi",
        "nvfractions-shorthand": "4000Mi",
    }
    assert found["nvfractions-fraction"]["metadata"]["annotations"][f"{KEY}main.gpu-memory.limit"] == "20000Mi"
    assert found["nvfractions-request-and-limit"]["metadata"]["annotations"][f"{KEY}main.gpu-memory.limit"] == "8192Mi"
    of_mode = {device for name, (_, device) in said.items() if name == "nvfractions-sm-sharing"}
    others = {device for name, (_, device) in said.items() if name != "nvfractions-sm-sharing"}
    assert len(of_mode) == len(others) == 1, "equal modes share a device"
    assert of_mode != others, "different ones do not"
    assert not any(names.SHARED_GPU_CONFIGMAP in item["metadata"]["annotations"] for item in found.values())


async def test_memory_of_each_of_two_devices(
    product: None, real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    await kubectl("apply", "-n", namespace, "-f", str(EXAMPLES / "two-devices.yaml"))
    found = await eventually(lambda: bound(real_api, namespace, 1))
    request, devices = device(found["nvfractions-two-devices"])
    assert request == "7680Mi"
    assert len(set(devices.split(","))) == 2


async def test_a_mode_waits_rather_than_share_a_device_with_another(
    product: None, real_api: HttpApi, namespace: str, eventually: Eventually
) -> None:
    for name in ("a", "b"):
        await real_api.create(POD, pod(name, "30000Mi"), namespace)
    await eventually(lambda: bound(real_api, namespace, 2))
    await real_api.create(POD, pod("late", "1Gi", names.SM_SHARING), namespace)

    async def lacks_a_device() -> bool:
        return "GPU" in await why_waiting(real_api, namespace, "late")

    await eventually(lacks_a_device)
    await real_api.delete(POD.ref("a", namespace))
    found = await eventually(lambda: bound(real_api, namespace, 2))
    assert device(found["late"])[1] != device(found["b"])[1]


async def test_nodes_that_are_not_ready_take_no_shares_and_only_the_binder_writes_devices(
    product: None, real_api: HttpApi, namespace: str, eventually: Eventually
) -> None:
    def condition(status: str) -> Patch:
        row: dict[str, Any] = {"type": READY, "status": status, "reason": "NoDriver", "message": "driver missing"}
        return Patch.strategic({"status": {"conditions": [row]}})

    await real_api.patch(NODE.ref(NODE_NAME).sub("status"), condition("False"))
    await real_api.create(POD, pod("p", "1Gi"), namespace)

    message = await eventually(lambda: why_waiting(real_api, namespace, "p"))
    assert (
        f"node is not ready for fractional GPU scheduling. Condition {READY} is False. Reason: NoDriver. "
        "Message: driver missing"
    ) in message
    await real_api.patch(NODE.ref(NODE_NAME).sub("status"), condition("True"))
    await eventually(lambda: bound(real_api, namespace, 1))
    body = {"metadata": {"annotations": {f"{KEY}main.gpus.devices": "0"}}}
    with pytest.raises(Forbidden) as refused:
        await real_api.patch(POD.ref("p", namespace), Patch.merge(body))
    account = "system:serviceaccount:kai-scheduler:binder"
    assert f".gpus.devices annotations may only be modified by {account}" in str(refused.value)
    with pytest.raises(Forbidden, match="invalid NvFractions compute mode: fast"):
        await real_api.create(POD, pod("q", "1Gi", "fast"), namespace)
