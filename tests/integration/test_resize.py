"""In-place resize on a real control plane: the webhook of `pods/resize` and its texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykai.cli.local_cluster import LocalProduct
from pykai.hollow.hollow_node import NodeShape
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Object, Patch
from pykai.kube.api_resources import POD, QUEUE
from pykai.kube.client import HttpApi
from pykai.kube.errors import Forbidden
from pykai.local.control_plane import ControlPlane
from pykai.objects import names
from tests import builders
from tests.hollow_nodes import hollow_nodes

from .conftest import Eventually
from .whole_product import at_work


@pytest.fixture
async def product(real_api: HttpApi, local_cluster: ControlPlane) -> AsyncIterator[None]:
    async with (
        at_work(LocalProduct(), real_api, Path(local_cluster.files.kubeconfig)),
        hollow_nodes(real_api, [NodeShape("resize-0")], KubeletSettings(stop_seconds=0.1)),
    ):
        yield


async def _supports_resize(api: HttpApi, namespace: str) -> bool:
    """Report what a container has, as a kubelet does that can resize: the API server refuses a resize without it."""
    ref = POD.ref("p", namespace)
    statuses = ((await api.get(ref, Object)).get("status") or {}).get("containerStatuses") or []
    has = {"requests": {"cpu": "1"}}
    told = [{**each, "resources": has, "allocatedResources": has["requests"]} for each in statuses]
    if told:
        await api.patch(ref.sub("status"), Patch.merge({"status": {"containerStatuses": told}}))
    return bool(told)


async def test_an_upsize_must_fit_the_queue(
    product: None, real_api: HttpApi, namespace: str, eventually: Eventually
) -> None:
    name = f"resized-{namespace}"
    bounds = {resource: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for resource in ("cpu", "gpu", "memory")}
    bounds["cpu"]["limit"] = 2000
    await real_api.create(QUEUE, {"metadata": {"name": name}, "spec": {"resources": bounds}})
    made = builders.pod("p", requests={"cpu": "1"}, labels={names.QUEUE_LABEL: name})
    made["metadata"] = {"name": "p", "labels": made["metadata"]["labels"]}
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    try:
        await real_api.create(POD, made, namespace)

        async def counted() -> bool:
            status = (await real_api.get(QUEUE.ref(name), Object)).get("status") or {}
            return (status.get("allocated") or {}).get("cpu") == "1"

        await eventually(counted)
        pod = await real_api.get(POD.ref("p", namespace), Object)
        group = pod["metadata"]["annotations"][names.POD_GROUP_ANNOTATION]
        container = pod["spec"]["containers"][0]["name"]
        await eventually(lambda: _supports_resize(real_api, namespace))

        def resize(cpu: str) -> Patch:
            row = {"name": container, "resources": {"requests": {"cpu": cpu}}}
            return Patch.strategic({"spec": {"containers": [row]}})

        with pytest.raises(Forbidden) as refused:
            await real_api.patch(POD.ref("p", namespace).sub("resize"), resize("2500m"))
        assert (
            f"resize rejected: pod {namespace}/p (PodGroup {group}) CPU upsize would push queue {name} Allocated "
            "(1000m + 1500m) over limit (2000m)"
        ) in str(refused.value)
        after = await real_api.patch(POD.ref("p", namespace).sub("resize"), resize("1500m"))
        assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"

        async def charged() -> bool:
            status = (await real_api.get(QUEUE.ref(name), Object)).get("status") or {}
            return (status.get("allocated") or {}).get("cpu") == "1500m"

        await eventually(charged)
    finally:
        await real_api.delete(QUEUE.ref(name))
