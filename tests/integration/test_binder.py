"""The binder and its reservations on a real control plane; hollow kubelets run the reservation program."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from pykai.cli.install import install
from pykai.cli.resource_reservation import on_hollow_nodes
from pykai.controllers.binder.binder import Binder
from pykai.hollow.hollow_node import GpuShape, NodeShape, shape_devices
from pykai.hollow.kubelet_settings import KubeletSettings
from pykai.kube.api import Object, Selection
from pykai.kube.api_resources import (
    BIND_REQUEST,
    CONFIG_MAP,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
    RUNTIME_CLASS,
    STORAGE_CLASS,
)
from pykai.kube.client import HttpApi
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.informer import InformerFactory
from pykai.objects import names
from tests.hollow_nodes import hollow_nodes

from .conftest import Eventually, Kubectl

NODE_SHAPE = NodeShape("binder-node", GpuShape(8))
RESERVED = names.RESERVATION_NAMESPACE


@pytest.fixture
async def cluster(real_api: HttpApi) -> AsyncIterator[HttpApi]:
    """The product's objects and one node with eight GPUs whose reservation pods run their program."""
    await install(real_api)
    with suppress(AlreadyExists):
        await real_api.create(RUNTIME_CLASS, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    settings = KubeletSettings(stop_seconds=0.1, on_start=on_hollow_nodes(lambda: real_api))
    async with hollow_nodes(real_api, [NODE_SHAPE], settings):
        yield real_api


@asynccontextmanager
async def running_binder(api: HttpApi) -> AsyncIterator[None]:
    watches = InformerFactory(api)
    binder = Binder(api, watches)
    tasks = [asyncio.create_task(watches.run()), asyncio.create_task(binder.run())]
    try:
        yield
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pod(api: HttpApi, namespace: str, name: str, **spec: Any) -> Object:
    annotations = spec.pop("annotations", {})
    container: Object = {"name": "main", "image": "cuda"}
    if names.GPU_FRACTION in annotations:
        annotations = {**annotations, names.SHARED_GPU_CONFIGMAP: f"{name}-abcdefg-shared-gpu"}
        key = {"name": f"{name}-abcdefg-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"}
        container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": key}}]
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **spec},
    }
    return await api.create(POD, body, namespace)


async def request(api: HttpApi, made: Object, **spec: Any) -> None:
    meta = made["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    given = {"podName": meta["name"], "selectedNode": NODE_SHAPE.name, "receivedResourceType": "Regular", **spec}
    await api.create(
        BIND_REQUEST, {"metadata": {"name": meta["name"], "ownerReferences": [owner]}, "spec": given}, meta["namespace"]
    )


async def halves(api: HttpApi, namespace: str, numbers: Iterable[int]) -> list[str]:
    """Half-GPU pods, two for each group, and their requests, all at once."""

    async def one(number: int) -> str:
        made = await pod(api, namespace, f"p{number}", annotations={names.GPU_FRACTION: "0.5"})
        groups = [f"{namespace}-g{number // 2}"]
        gpu = {"count": 1, "portion": "0.50"}
        await request(api, made, receivedResourceType="Fraction", selectedGPUGroups=groups, receivedGPU=gpu)
        return f"p{number}"

    return list(await asyncio.gather(*(one(number) for number in numbers)))


async def all_running(api: HttpApi, namespace: str, count: int) -> bool:
    found = (await api.list(POD, Object, Selection(namespace=namespace))).items
    return [each["status"]["phase"] for each in found] == ["Running"] * count


async def reservations(api: HttpApi) -> list[Object]:
    return list((await api.list(POD, Object, Selection(namespace=RESERVED))).items)


async def told_devices(api: HttpApi, namespace: str, pods: Iterable[str]) -> list[str]:
    maps = [await api.get(CONFIG_MAP.ref(f"{name}-abcdefg-shared-gpu-0", namespace), Object) for name in pods]
    return [each["data"]["NVIDIA_VISIBLE_DEVICES"] for each in maps]


async def gone(api: HttpApi, namespace: str, eventually: Eventually) -> None:
    for each in (await api.list(POD, Object, Selection(namespace=namespace))).items:
        with suppress(NotFound):
            await api.delete(POD.ref(each["metadata"]["name"], namespace))

    async def nothing_left() -> bool:
        return not await reservations(api) and not (await api.list(POD, Object, Selection(namespace=namespace))).items

    await eventually(nothing_left)


async def check_halves(api: HttpApi, namespace: str, pods: list[str]) -> None:
    told = await told_devices(api, namespace, pods)
    assert sorted(Counter(told).values()) == [2] * 8
    assert set(told) == {device.uuid for device in shape_devices(NODE_SHAPE)}
    held = [each["metadata"]["annotations"][names.RESERVED_GPU_INDEX] for each in await reservations(api)]
    assert sorted(held) == sorted(set(told))


async def test_sixteen_halves_share_eight_devices_and_leave_nothing(
    cluster: HttpApi, namespace: str, eventually: Eventually, kubectl: Kubectl
) -> None:
    async with running_binder(cluster):
        for numbers in (range(16), range(16, 32)):
            pods = await halves(cluster, namespace, numbers)
            await eventually(lambda: all_running(cluster, namespace, 16))
            await check_halves(cluster, namespace, pods)
            first = (await reservations(cluster))[0]
            said = await kubectl("logs", "-n", RESERVED, first["metadata"]["name"])
            assert first["metadata"]["annotations"][names.RESERVED_GPU_INDEX] in said
            assert first["spec"]["runtimeClassName"] == "nvidia"
            await gone(cluster, namespace, eventually)


async def test_binders_that_die_again_and_again_change_nothing(
    cluster: HttpApi, namespace: str, eventually: Eventually
) -> None:
    chance = random.Random(7)
    filling = asyncio.create_task(halves(cluster, namespace, range(16)))
    for _ in range(8):
        async with running_binder(cluster):
            await asyncio.sleep(chance.uniform(0.02, 0.4))
    pods = await filling
    async with running_binder(cluster):
        await eventually(lambda: all_running(cluster, namespace, 16))
        await check_halves(cluster, namespace, pods)
    for name in pods:
        await cluster.delete(POD.ref(name, namespace))
    async with running_binder(cluster):
        await gone(cluster, namespace, eventually)


async def test_a_whole_gpu_pod_is_bound_with_its_annotations_in_one_write(
    cluster: HttpApi, namespace: str, eventually: Eventually, kubectl: Kubectl
) -> None:
    async with running_binder(cluster):
        made = await pod(cluster, namespace, "p")
        await request(cluster, made, predictedNUMAZones=[{"zone": "node-0", "amount": {"cpu": "2"}}])
        await kubectl("wait", "--for=condition=Ready", "pod/p", "-n", namespace, "--timeout=50s")
        bound = await cluster.get(POD.ref("p", namespace), Object)
        assert bound["metadata"]["annotations"] == {
            names.RECEIVED_RESOURCE_TYPE: "Regular",
            names.NUMA_PREDICTED: '[{"zone":"node-0","amount":{"cpu":"2"}}]',
        }
        await kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", "bindrequest/p", "-n", namespace, "--timeout=50s"
        )

        async def told() -> bool:
            return "Pod bound successfully to node binder-node" in await kubectl(
                "describe", "pod", "p", "-n", namespace
            )

        await eventually(told)


async def test_a_failure_is_shown_by_describe(
    cluster: HttpApi, namespace: str, eventually: Eventually, kubectl: Kubectl
) -> None:
    async with running_binder(cluster):
        await request(cluster, await pod(cluster, namespace, "p"), selectedNode="nowhere")

        async def told() -> bool:
            shown = await kubectl("describe", "pod", "p", "-n", namespace)
            return "BindingError" in shown and 'nodes "nowhere" not found' in shown and "PodBound" in shown

        await eventually(told)
        status = (await cluster.get(BIND_REQUEST.ref("p", namespace), Object))["status"]
        assert status == {"phase": "Failed", "reason": 'nodes "nowhere" not found', "failedAttempts": 1}


async def test_a_local_volume_is_bound_before_its_pod(
    cluster: HttpApi, namespace: str, eventually: Eventually, kubectl: Kubectl
) -> None:
    name = f"{namespace}-disk"
    sort = {
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_SHAPE.name]}
    common = {"storageClassName": name, "accessModes": ["ReadWriteOnce"]}
    volume = {
        **common,
        "capacity": {"storage": "2Gi"},
        "local": {"path": "/mnt/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    await cluster.create(STORAGE_CLASS, sort)
    await cluster.create(PERSISTENT_VOLUME, {"metadata": {"name": name}, "spec": volume})
    claim = {"metadata": {"name": "data"}, "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}}}
    await cluster.create(PERSISTENT_VOLUME_CLAIM, claim, namespace)
    try:
        async with running_binder(cluster):
            mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
            await request(cluster, await pod(cluster, namespace, "p", volumes=mounts))
            await kubectl("wait", "--for=condition=Ready", "pod/p", "-n", namespace, "--timeout=50s")
            bound = await cluster.get(PERSISTENT_VOLUME_CLAIM.ref("data", namespace), Object)
            assert (bound["status"]["phase"], bound["spec"]["volumeName"]) == ("Bound", name)
    finally:
        await cluster.delete(PERSISTENT_VOLUME.ref(name))
        await cluster.delete(STORAGE_CLASS.ref(name))


async def test_a_resource_claim_is_allocated_and_given_back(
    cluster: HttpApi, namespace: str, eventually: Eventually
) -> None:
    """Two pods with a claim each; the second names a ConfigMap that is not there, so its claim must be free again."""
    try:
        await cluster.list(RESOURCE_CLAIM, Object)
    except NotFound:
        pytest.skip(
            f"no {RESOURCE_CLAIM.qualified} here: Kubernetes serves it since 1.34; test_dra_versions has older ones"
        )
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "pool", "device": "gpu-0"}
    given = [{"name": "mine", "allocation": {"devices": {"results": [result]}}}]
    wanted = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
    fraction = {"receivedResourceType": "Fraction", "selectedGPUGroups": [f"{namespace}-g"]}
    async with running_binder(cluster):
        for name, more in (("good", {}), ("bad", fraction)):
            await cluster.create(RESOURCE_CLAIM, {"metadata": {"name": name}, "spec": wanted}, namespace)
            made = await pod(cluster, namespace, name, resourceClaims=[{"name": "mine", "resourceClaimName": name}])
            await request(cluster, made, resourceClaimAllocations=given, **more)

        async def phases() -> bool:
            found = (await cluster.list(BIND_REQUEST, Object, Selection(namespace=namespace))).items
            return [(each.get("status") or {}).get("phase") for each in found] == ["Failed", "Succeeded"]

        await eventually(phases)
        good, bad = [await cluster.get(RESOURCE_CLAIM.ref(name, namespace), Object) for name in ("good", "bad")]
        assert good["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert [user["name"] for user in good["status"]["reservedFor"]] == ["good"]
        assert "resource.kubernetes.io/delete-protection" in good["metadata"]["finalizers"]
        assert "allocation" not in (bad.get("status") or {})
        await gone(cluster, namespace, eventually)
