"""Resource claims on servers that serve only an older version of their API, as Kubernetes 1.32 and 1.33 do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pykai.kube.api import Object
from pykai.kube.api_resources import DEVICE_CLASS, POD, QUEUE, RESOURCE_CLAIM, RESOURCE_SLICE
from pykai.kube.client import HttpApi
from pykai.objects import names
from tests import builders

from .conftest import Eventually
from .whole_product import product_on, serving

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
    served = f"resource.k8s.io/v1=false,resource.k8s.io/{version}=true"
    with serving(control_plane_binary, tmp_path / "dra", {"runtime-config": served}) as kubeconfig:
        yield kubeconfig


@pytest.fixture
async def api(kubeconfig: Path) -> AsyncIterator[HttpApi]:
    """All components and one node on that control plane."""
    async with product_on(kubeconfig, NODE) as api:
        yield api


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
