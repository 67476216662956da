"""Resource claims on servers that serve only an older version of their API, as Kubernetes 1.32 and 1.33 do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pykai.cli.local_cluster import LocalProduct
from pykai.hollow.hollow_node import NodeShape
from pykai.kube.api import Object
from pykai.kube.client import HttpApi
from pykai.kube.resources import DEVICE_CLASS, POD, QUEUE, RESOURCE_CLAIM, RESOURCE_SLICE
from pykai.local.control_plane import APISERVER, FLAGS, start_cluster
from pykai.local.session import connect
from pykai.objects import names
from tests import builders
from tests.hollow_nodes import hollow_nodes
from tests.timeouts import TIMEOUT_SECONDS

from .conftest import Eventually

NODE, DRIVER = "dra-0", "gpu.example.com"
LABELS = {names.QUEUE_LABEL: "team"}
SLICE = {
    "driver": DRIVER,
    "nodeName": NODE,
    "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
}
FORMS = {
    "v1beta2": ({"name": "gpu-0"}, {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}),
    "v1beta1": ({"name": "gpu-0", "basic": {}}, {"name": "gpu", "deviceClassName": DRIVER}),
}


@pytest.fixture(params=FORMS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kubeconfig(control_plane_binary: Path, version: str, tmp_path: Path) -> Iterator[Path]:
    """A control plane that serves resource.k8s.io in this version only."""
    usual = FLAGS[APISERVER]
    served = f"resource.k8s.io/v1=false,resource.k8s.io/{version}=true"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FLAGS, APISERVER, lambda site: {**usual(site), "runtime-config": served})
        plane = start_cluster(tmp_path / "dra", control_plane_binary)
    yield Path(plane.files.kubeconfig)
    plane.stop()


@pytest.fixture
async def api(kubeconfig: Path) -> AsyncIterator[HttpApi]:
    """All components and one node on that control plane."""
    ready = asyncio.Event()
    work = asyncio.create_task(LocalProduct().run(kubeconfig, ready))
    async with connect(kubeconfig) as api:
        await asyncio.wait_for(ready.wait(), TIMEOUT_SECONDS)
        async with hollow_nodes(api, [NodeShape(NODE)]):
            yield api
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_a_claim_is_allocated_in_the_version_of_the_server(
    api: HttpApi, version: str, eventually: Eventually
) -> None:
    device, request = FORMS[version]
    api_version = f"resource.k8s.io/{version}"
    await api.create(QUEUE, builders.queue("root"))
    await api.create(QUEUE, builders.queue("team", "root"))
    await api.create(DEVICE_CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
    offered = {"apiVersion": api_version, "metadata": {"name": NODE}, "spec": {**SLICE, "devices": [device]}}
    await api.create(RESOURCE_SLICE, offered)
    asked = {"apiVersion": api_version, "metadata": {"name": "c", "labels": LABELS}}
    await api.create(RESOURCE_CLAIM, {**asked, "spec": {"devices": {"requests": [request]}}}, "default")
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "containers": [{"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
    }
    await api.create(POD, {"metadata": {"name": "p", "labels": LABELS}, "spec": spec}, "default")

    async def runs() -> bool:
        return bool((await api.get(POD.ref("p", "default"), Object))["status"]["phase"] == "Running")

    await eventually(runs)
    claim = await api.get(RESOURCE_CLAIM.ref("c", "default"), Object)
    assert claim["apiVersion"] == api_version
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["device"]) == (NODE, "gpu-0")
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["p"]
