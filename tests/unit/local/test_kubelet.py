"""Hollow kubelets on the API server in memory: the whole life of a pod, in fractions of a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.hollow.hollow_node import FakeNvml, GpuShape, HollowDevice, NodeShape, shape_devices
from pykai.hollow.kubelet_settings import KubeletSettings, Log, LogOptions
from pykai.kube.api import Deletion, Object, Patch
from pykai.kube.api_resources import JOB, LEASE, NAMESPACE, NODE, POD
from pykai.kube.errors import Unavailable
from pykai.kube.memory.memory_api import MemoryApi
from pykai.kube.operations import bind
from pykai.local.kubelet import FAKE_LABEL, HollowKubelets, is_ready, renewal_interval
from tests.hollow_nodes import hollow_nodes
from tests.timeouts import TIMEOUT_SECONDS

from .pods import await_gone, await_phase, eventually, pod, status_of

NODE_SHAPE = NodeShape("gpu", GpuShape(2))
QUICK = KubeletSettings(stop_seconds=0.05, job_seconds=0.05, restart_seconds=0.01)


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(time.time)


@asynccontextmanager
async def playing(api: MemoryApi, settings: KubeletSettings = QUICK) -> AsyncIterator[HollowKubelets]:
    async with hollow_nodes(api, [NODE_SHAPE], settings) as kubelets:
        yield kubelets


async def test_nodes_come_and_go(api: MemoryApi) -> None:
    async with playing(api) as kubelets:
        node = await api.get(NODE.ref("gpu"), Object)
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
        assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
        lease = await api.get(LEASE.ref("gpu", "kube-node-lease"), Object)
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        await kubelets.add([NodeShape("late")])
        assert {item["metadata"]["name"] for item in (await api.list(NODE, Object)).items} == {"gpu", "late"}
        await api.delete(NODE.ref("late"))
        assert len((await api.list(NODE, Object)).items) == 1
    assert (await api.list(NODE, Object)).items == []


async def test_a_fake_node_of_an_autoscaler_gets_a_kubelet(api: MemoryApi) -> None:
    def fake(name: str, **labels: str) -> Object:
        status = {"allocatable": {"cpu": "8", "memory": "1Gi", "pods": "20", "nvidia.com/gpu": "4"}}
        return {"metadata": {"name": name, "labels": {"mine": "kept", **labels}}, "status": status}

    async with playing(api) as kubelets:
        await api.create(NODE, fake("other"))
        await api.create(NODE, fake("new", **dict([FAKE_LABEL])))

        async def ready() -> bool:
            return is_ready(await api.get(NODE.ref("new"), Object))

        await eventually(ready)
        node = await api.get(NODE.ref("new"), Object)
        assert node["metadata"]["labels"]["mine"] == "kept"
        assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "4"
        await api.create(POD, pod("p", gpus=1) | {"spec": {**pod("p", gpus=1)["spec"], "nodeName": "new"}})
        await await_phase(api, "p", "Running")
        assert list(kubelets.ledgers) == ["gpu", "new"]
        await api.delete(NODE.ref("new"))

        async def forgotten() -> bool:
            return list(kubelets.ledgers) == ["gpu"]

        await eventually(forgotten)


async def test_a_bound_pod_runs(api: MemoryApi) -> None:
    async with playing(api):
        await api.create(POD, pod("p", node=""))
        await asyncio.sleep(0.05)
        assert (await status_of(api, "p"))["phase"] == "Pending"
        await bind(api, POD.ref("p", "default"), "gpu")
        status = await await_phase(api, "p", "Running")
    assert status["podIP"]
    assert status["startTime"]
    assert status["containerStatuses"][0]["ready"]
    assert {row["type"] for row in status["conditions"] if row["status"] == "True"} >= {"Ready", "PodScheduled"}


async def test_pods_of_other_nodes_are_left_alone(api: MemoryApi) -> None:
    async with playing(api):
        await api.create(POD, pod("p", node="elsewhere"))
        await asyncio.sleep(0.1)
        assert (await status_of(api, "p"))["phase"] == "Pending"


async def test_more_devices_than_there_are_is_refused(api: MemoryApi) -> None:
    async with playing(api):
        await api.create(POD, pod("first", gpus=1))
        await await_phase(api, "first", "Running")
        await api.create(POD, pod("second", gpus=2))
        status = await await_phase(api, "second", "Failed")
        assert status["reason"] == "OutOfnvidia.com/gpu"
        assert "requested: 2, used: 1, capacity: 2" in status["message"]
        await api.delete(POD.ref("first", "default"))
        await await_gone(api, "first")
        await api.create(POD, pod("third", gpus=2))
        await await_phase(api, "third", "Running")


async def test_a_finished_pod_frees_its_devices(api: MemoryApi) -> None:
    async with playing(api):
        once: dict[str, Any] = {"annotations": {"pykai.io/run-seconds": "0.05"}, "spec": {"restartPolicy": "Never"}}
        await api.create(POD, pod("first", gpus=2, **once))
        await await_phase(api, "first", "Succeeded")
        await api.create(POD, pod("second", gpus=2))
        await await_phase(api, "second", "Running")


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", "0", "Succeeded"), ("Never", "3", "Failed"), ("OnFailure", "0", "Succeeded")],
)
async def test_how_a_pod_ends(api: MemoryApi, policy: str, code: str, phase: str) -> None:
    annotations = {"pykai.io/run-seconds": "0", "pykai.io/exit-code": code}
    async with playing(api):
        await api.create(POD, pod("p", annotations=annotations, spec={"restartPolicy": policy}))
        status = await await_phase(api, "p", phase)
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == int(code)


@pytest.mark.parametrize(("policy", "code"), [("Always", "0"), ("Always", "1"), ("OnFailure", "1")])
async def test_containers_are_restarted(api: MemoryApi, policy: str, code: str) -> None:
    annotations = {"pykai.io/run-seconds": "0", "pykai.io/exit-code": code}

    async def restarted() -> bool:
        rows = (await status_of(api, "p")).get("containerStatuses") or [{"restartCount": 0}]
        return bool(rows[0]["restartCount"] >= 2)

    async with playing(api):
        await api.create(POD, pod("p", annotations=annotations, spec={"restartPolicy": policy}))
        await eventually(restarted)
        assert (await status_of(api, "p"))["phase"] == "Running"


async def test_pods_of_jobs_complete(api: MemoryApi) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "ubuntu"}]}}
    job = await api.create(JOB, {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
    async with playing(api):
        await api.create(POD, pod("p", ownerReferences=[owner], spec={"restartPolicy": "Never"}))
        await await_phase(api, "p", "Succeeded")


async def test_a_bad_annotation_is_named(api: MemoryApi) -> None:
    async with playing(api):
        await api.create(POD, pod("p", annotations={"pykai.io/run-seconds": "soon"}))
        status = await await_phase(api, "p", "Failed")
    assert "annotation pykai.io/run-seconds: 'soon'" in status["message"]


@pytest.mark.parametrize(("annotation", "grace", "least"), [(None, 30, 0.04), ("0.4", 30, 0.35), ("60", 1, 0.9)])
async def test_a_deleted_pod_goes_within_its_grace(
    api: MemoryApi, annotation: str | None, grace: int, least: float
) -> None:
    annotations = {} if annotation is None else {"pykai.io/stop-seconds": annotation}
    async with playing(api):
        await api.create(POD, pod("p", annotations=annotations))
        await await_phase(api, "p", "Running")
        begun = time.monotonic()
        await api.delete(POD.ref("p", "default"), Deletion(grace_seconds=grace))
        assert "deletionTimestamp" in (await api.get(POD.ref("p", "default"), Object))["metadata"]
        await await_gone(api, "p")
        assert least <= time.monotonic() - begun < 20, "long before a grace of 30 or a stop of 60 seconds ends"


async def test_a_deleted_pod_with_a_finalizer_ends_but_stays(api: MemoryApi) -> None:
    async with playing(api):
        await api.create(POD, pod("p", finalizers=["example.com/wait"]))
        await await_phase(api, "p", "Running")
        await api.delete(POD.ref("p", "default"))
        await await_phase(api, "p", "Failed")
        await api.patch(POD.ref("p", "default"), Patch.merge({"metadata": {"finalizers": None}}))
        await await_gone(api, "p")


async def test_a_pod_of_the_same_name_is_another_pod(api: MemoryApi) -> None:
    async with playing(api):
        for _ in range(3):
            await api.create(POD, pod("p", gpus=2))
            await await_phase(api, "p", "Running")
            await api.delete(POD.ref("p", "default"), Deletion(grace_seconds=0))
        await api.create(POD, pod("p", gpus=2))
        await await_phase(api, "p", "Running")


async def test_a_node_said_to_be_unready_speaks_up(api: MemoryApi) -> None:
    unready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}

    async def ready() -> bool:
        rows = (await api.get(NODE.ref("gpu"), Object))["status"]["conditions"]
        return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)

    async with playing(api):
        await api.patch(NODE.ref("gpu").sub("status"), Patch.strategic(unready))
        assert not await ready()
        await eventually(ready)


async def test_a_changed_allocatable_is_obeyed(api: MemoryApi) -> None:
    async with playing(api):
        less = {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}
        await api.patch(NODE.ref("gpu").sub("status"), Patch.merge(less))
        await asyncio.sleep(0.1)
        await api.create(POD, pod("p", gpus=2))
        assert (await await_phase(api, "p", "Failed"))["reason"] == "OutOfnvidia.com/gpu"


def reservation(api: MemoryApi) -> KubeletSettings:
    """KubeletSettings with a program that tells its device the way the reservation program does."""

    def on_start(given: Object, node: str, held: tuple[HollowDevice, ...], log: Log) -> Any:
        async def program() -> None:
            nvml = FakeNvml(held)
            nvml.nvmlInit()
            uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0))
            told = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": uuid}}}
            await api.patch(POD.ref(given["metadata"]["name"], "default"), Patch.merge(told))
            log(f"device {uuid} on {node}")
            await asyncio.Event().wait()

        return program() if given["metadata"]["name"].startswith("gpu-reservation") else None

    return KubeletSettings(stop_seconds=0.05, on_start=on_start)


async def told_device(api: MemoryApi, name: str) -> str:
    async def check() -> str:
        annotations = (await api.get(POD.ref(name, "default"), Object))["metadata"].get("annotations") or {}
        return str(annotations.get("run.ai/reserve_for_gpu_index", ""))

    return str(await eventually(check))


async def test_a_program_sees_the_devices_its_pod_was_given(api: MemoryApi) -> None:
    async with playing(api, reservation(api)) as kubelets:
        await api.create(POD, pod("whole", gpus=1))
        await await_phase(api, "whole", "Running")
        await api.create(POD, pod("gpu-reservation-1", gpus=1))
        uuid = await told_device(api, "gpu-reservation-1")
        assert uuid == shape_devices(NODE_SHAPE)[1].uuid
        log = kubelets.pods.log_of("default", "gpu-reservation-1")
        assert log is not None
        assert [line.text for line in log.chosen(LogOptions())] == [f"device {uuid} on gpu"]


async def test_the_log_of_a_pod_with_a_share_names_the_device_that_is_reserved_for_it(api: MemoryApi) -> None:
    labels, annotations = {"runai-gpu-group": "g"}, {"gpu-fraction": "0.5"}
    async with playing(api) as kubelets:
        reserving = pod("gpu-reservation-1", gpus=1)
        reserving["metadata"] |= {"namespace": "kai-resource-reservation", "labels": labels}
        await api.create(NAMESPACE, {"metadata": {"name": "kai-resource-reservation"}})
        await api.create(POD, reserving)
        sharing = pod("p")
        sharing["metadata"] |= {"labels": labels, "annotations": annotations}
        sharing["spec"]["containers"].append({"name": "sidecar", "image": "x"})
        await api.create(POD, sharing)
        await await_phase(api, "p", "Running")
        first, second = (kubelets.pods.log_of("default", "p", each["name"]) for each in sharing["spec"]["containers"])
        assert first is not None
        assert second is not None
        uuid = shape_devices(NODE_SHAPE)[0].uuid
        assert first.chosen(LogOptions())[-1].text.endswith(f"would see GPU 0 ({uuid}), 0.5 of it")
        assert second.chosen(LogOptions())[-1].text.endswith("container sidecar would see no GPU")


async def test_kubelets_that_come_back_leave_pods_their_devices(api: MemoryApi) -> None:
    shape, other = shape_devices(NODE_SHAPE)
    async with playing(api, reservation(api)):
        await api.create(POD, pod("whole", gpus=1))
        await await_phase(api, "whole", "Running")
        await api.create(POD, pod("gpu-reservation-1", gpus=1))
        assert await told_device(api, "gpu-reservation-1") == other.uuid
        before = await status_of(api, "whole")
    seen: dict[str, tuple[HollowDevice, ...]] = {}

    def on_start(given: Object, node: str, held: tuple[HollowDevice, ...], log: Log) -> None:
        seen[given["metadata"]["name"]] = held

    async with playing(api, KubeletSettings(on_start=on_start)):

        async def both() -> bool:
            return len(seen) == 2

        await eventually(both)
        assert await status_of(api, "whole") == before, "a running pod is not started again"
    assert seen == {"gpu-reservation-1": (other,), "whole": (shape,)}


async def test_a_program_that_fails_is_told_in_the_log_and_restarted(api: MemoryApi) -> None:
    attempts: list[str] = []

    def on_start(given: Object, node: str, held: tuple[HollowDevice, ...], log: Log) -> Any:
        async def program() -> None:
            attempts.append(node)
            raise RuntimeError("no such device")

        return program()

    async def tried_again() -> bool:
        return len(attempts) >= 2

    async with playing(api, KubeletSettings(restart_seconds=0.01, on_start=on_start)) as kubelets:
        await api.create(POD, pod("p"))
        await eventually(tried_again)
        log = kubelets.pods.log_of("default", "p", previous=True)
        assert log is not None
        assert "RuntimeError: no such device" in [line.text for line in log.chosen(LogOptions())]


async def test_a_program_is_cancelled_when_its_pod_is_deleted(api: MemoryApi) -> None:
    ended = asyncio.Event()

    def on_start(given: Object, node: str, held: tuple[HollowDevice, ...], log: Log) -> Any:
        async def program() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        return program()

    async with playing(api, KubeletSettings(stop_seconds=60, on_start=on_start)):
        await api.create(POD, pod("p"))
        await await_phase(api, "p", "Running")
        await api.delete(POD.ref("p", "default"))
        await asyncio.wait_for(ended.wait(), TIMEOUT_SECONDS)
        await await_gone(api, "p")


async def test_writes_are_repeated_while_the_server_is_away(api: MemoryApi, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = api.patch, iter(range(2))

    async def unreliable(ref: Any, patch: Patch) -> Object:
        if ref.resource is POD and next(failures, None) is not None:
            raise Unavailable("away")
        return await real(ref, patch)

    monkeypatch.setattr(api, "patch", unreliable)
    async with playing(api):
        await api.create(POD, pod("p"))
        await await_phase(api, "p", "Running")


@pytest.mark.parametrize(("nodes", "seconds"), [(0, 10), (3, 10), (400, 20), (5000, 40)])
def test_renewal_interval(nodes: int, seconds: float) -> None:
    assert renewal_interval(nodes) == seconds


async def test_many_pods(api: MemoryApi) -> None:
    shapes = [NodeShape(f"n-{number}", GpuShape(8)) for number in range(20)]
    async with hollow_nodes(api, shapes):
        for number in range(160):
            await api.create(POD, pod(f"p-{number}", gpus=1, node=f"n-{number % 20}"))

        async def all_run() -> bool:
            items = (await api.list(POD, Object)).items
            return all((item.get("status") or {}).get("phase") == "Running" for item in items)

        await eventually(all_run)


async def test_a_refused_start_is_told_like_a_failed_program(api: MemoryApi) -> None:
    def on_start(given: Object, node: str, held: tuple[HollowDevice, ...], log: Log) -> None:
        raise KeyError("no program for this pod")

    async with playing(api, KubeletSettings(on_start=on_start)) as kubelets:
        await api.create(POD, pod("p", spec={"restartPolicy": "Never"}))
        await await_phase(api, "p", "Failed")
        log = kubelets.pods.log_of("default", "p")
        assert log is not None
        assert "no program for this pod" in log.chosen(LogOptions())[-1].text
