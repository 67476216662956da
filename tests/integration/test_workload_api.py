"""Gangs by Kubernetes' own Workload API (1.35, v1alpha1), on a server that serves it; other tests run without it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pykai.kube.api import Object, Selection
from pykai.kube.api_resources import EVENT, POD, POD_GROUP, QUEUE, WORKLOAD
from pykai.kube.client import HttpApi
from pykai.kube.errors import ApiError
from pykai.objects import names
from tests import builders

from .conftest import Eventually
from .whole_product import product_on, serving

LABELS = {names.QUEUE_LABEL: "team"}
SERVED = {"runtime-config": "scheduling.k8s.io/v1alpha1=true", "feature-gates": "GenericWorkload=true"}


@pytest.fixture
def kubeconfig(control_plane_binary: Path, tmp_path: Path) -> Iterator[Path]:
    with serving(control_plane_binary, tmp_path / "workloads", SERVED) as kubeconfig:
        yield kubeconfig


@pytest.fixture
async def api(kubeconfig: Path) -> AsyncIterator[HttpApi]:
    """All components and one node on that control plane."""
    async with product_on(kubeconfig, "node-0") as api:
        try:
            await api.list(WORKLOAD, Object)
        except ApiError:
            pytest.skip("this release of Kubernetes has no Workload in v1alpha1")
        yield api


def pod(name: str, **spec: object) -> Object:
    containers = [{"name": "main", "image": "x"}]
    labels = {"metadata": {"name": name, "labels": LABELS}}
    return {**labels, "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": containers, **spec}}


async def test_pods_that_refer_to_a_workload_start_together(api: HttpApi, eventually: Eventually) -> None:
    await api.create(QUEUE, builders.queue("root"))
    await api.create(QUEUE, builders.queue("team", "root"))
    reference = {"workloadRef": {"name": "train", "podGroup": "workers"}}
    await api.create(POD, pod("w-0", **reference), "default")

    async def says(text: str) -> bool:
        found = (await api.list(EVENT, Object, Selection(namespace="default"))).items
        about = [str(each["message"]) for each in found if each["involvedObject"]["name"] == "w-0"]
        return any(text in message for message in about)

    async def runs(count: int) -> bool:
        found = (await api.list(POD, Object, Selection(namespace="default"))).items
        return [(each.get("status") or {}).get("phase") for each in found].count("Running") == count

    await eventually(lambda: says("Workload default/train of pod default/w-0 does not exist"))
    gang = {"name": "workers", "policy": {"gang": {"minCount": 3}}}
    await api.create(WORKLOAD, {"metadata": {"name": "train"}, "spec": {"podGroups": [gang]}}, "default")
    await api.create(POD, pod("w-1", **reference), "default")
    await eventually(lambda: says("2 of 3 pods exist"))
    group = await api.get(POD_GROUP.ref("train-workers", "default"), Object)
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (3, "team")

    opted_out = pod("alone", **reference)
    opted_out["metadata"]["annotations"] = {"kai.scheduler/ignore-workload-api": "true"}
    await api.create(POD, opted_out, "default")
    await eventually(lambda: runs(1))
    await api.create(POD, pod("w-2", **reference), "default")
    await eventually(lambda: runs(4))
