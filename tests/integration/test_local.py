"""`kai local` on the real thing: a control plane on loopback, hollow kubelets, `kubectl`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykai.hollow.hollow_node import FakeNvml, GpuShape, HollowDevice, NodeShape, shape_devices
from pykai.hollow.kubelet_settings import KubeletSettings, Log
from pykai.kube.api import Object, Patch, Selection
from pykai.kube.api_resources import JOB, NODE, POD
from pykai.kube.client import HttpApi
from pykai.kube.operations import bind
from pykai.local import clusters
from pykai.local.cluster_session import ClusterPlan, LocalComponent, live
from pykai.local.clusters import ClusterError, clusters_root
from pykai.local.control_plane import ControlPlane, PartError, start_cluster
from pykai.local.pod_runtime import Containers, Host, Image
from pykai.local.process import ProcessId, identify, wait_for_end
from tests.hollow_nodes import hollow_nodes
from tests.timeouts import TIMEOUT_SECONDS

from .conftest import Eventually, Kubectl, kubectl_on

GPU_NODE = NodeShape("gpu", GpuShape(2))
SLICED_NODE = NodeShape("l4", GpuShape(1, 23034, "NVIDIA-L4", time_slices=4))
PARTS = {"etcd", "kube-apiserver", "kube-controller-manager"}


def pod(name: str, namespace: str, gpus: int = 0, **more: Any) -> Object:
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    spec = {"containers": [{"name": "main", "image": "ubuntu", "resources": resources}], **more.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, **more}, "spec": spec}


async def phase(api: HttpApi, name: str, namespace: str) -> str:
    found = await api.get(POD.ref(name, namespace), Object)
    return str(found["status"]["phase"])


# ------------------------------------------------------------------------------------------------- hollow kubelets
async def test_nodes_look_like_gpu_nodes_to_kubectl(
    real_api: HttpApi, kubectl: Kubectl, eventually: Eventually
) -> None:
    async with hollow_nodes(real_api, [GPU_NODE, SLICED_NODE]):

        async def untainted() -> bool:
            return await kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.taints}") == ""

        await eventually(untainted)
        chosen = await kubectl("get", "nodes", "-l", "nvidia.com/gpu.product=NVIDIA-L4-SHARED", "-o", "json")
        (node,) = json.loads(chosen)["items"]
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "1"
        await kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=50s")


async def test_a_pod_runs_from_bind_to_deletion(
    real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    async with hollow_nodes(real_api, [GPU_NODE]):
        await real_api.create(POD, pod("p", namespace, gpus=1, annotations={"pykai.io/stop-seconds": "3"}))
        await bind(real_api, POD.ref("p", namespace), "gpu")
        await kubectl("wait", "--for=condition=Ready", "pod/p", "-n", namespace, "--timeout=50s")
        found = await real_api.get(POD.ref("p", namespace), Object)
        assert found["status"]["podIP"].startswith("10.")
        assert found["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        await kubectl("delete", "pod", "p", "-n", namespace, "--wait=false")
        assert "Terminating" in await kubectl("get", "pods", "-n", namespace)
        await kubectl("wait", "--for=delete", "pod/p", "-n", namespace, "--timeout=50s")


async def test_the_kubelet_has_the_last_word_on_devices(
    real_api: HttpApi, namespace: str, eventually: Eventually, kubectl: Kubectl
) -> None:
    async with hollow_nodes(real_api, [GPU_NODE]):
        await real_api.create(POD, pod("first", namespace, gpus=1, spec={"nodeName": "gpu"}))
        await real_api.create(POD, pod("second", namespace, gpus=2, spec={"nodeName": "gpu"}))

        async def refused() -> bool:
            return await phase(real_api, "second", namespace) == "Failed"

        await eventually(refused)
        assert "OutOfnvidia.com/gpu" in await kubectl("get", "pod", "second", "-n", namespace)
        assert await phase(real_api, "first", namespace) == "Running"


async def test_a_time_sliced_device_serves_four_pods(real_api: HttpApi, namespace: str, eventually: Eventually) -> None:
    async with hollow_nodes(real_api, [SLICED_NODE]):
        for number in range(5):
            await real_api.create(POD, pod(f"p{number}", namespace, gpus=1, spec={"nodeName": "l4"}))

        async def settled() -> list[str]:
            phases = [await phase(real_api, f"p{number}", namespace) for number in range(5)]
            return phases if "Pending" not in phases else []

        assert sorted(await eventually(settled)) == ["Failed", *["Running"] * 4]


async def test_jobs_complete(real_api: HttpApi, namespace: str, kubectl: Kubectl) -> None:
    template = {
        "metadata": {"annotations": {"pykai.io/run-seconds": "0.5"}},
        "spec": {"restartPolicy": "Never", "nodeName": "gpu", "containers": [{"name": "main", "image": "ubuntu"}]},
    }
    body = {"metadata": {"name": "job"}, "spec": {"completions": 3, "parallelism": 2, "template": template}}
    async with hollow_nodes(real_api, [GPU_NODE]):
        await real_api.create(JOB, body, namespace)
        await kubectl("wait", "--for=condition=Complete", "job/job", "-n", namespace, "--timeout=50s")
        pods = await real_api.list(POD, Object, Selection(namespace=namespace))
        assert [item["status"]["phase"] for item in pods.items] == ["Succeeded"] * 3


async def test_deleting_a_namespace_takes_its_running_pods(real_api: HttpApi, namespace: str, kubectl: Kubectl) -> None:
    async with hollow_nodes(real_api, [GPU_NODE], KubeletSettings(stop_seconds=0.1)):
        await kubectl("create", "namespace", f"{namespace}-b")
        await real_api.create(POD, pod("p", f"{namespace}-b", spec={"nodeName": "gpu"}))
        await kubectl("delete", "namespace", f"{namespace}-b", "--timeout=50s")


async def test_a_program_sees_its_device_and_kubectl_its_log(
    real_api: HttpApi, namespace: str, kubectl: Kubectl, eventually: Eventually
) -> None:
    def on_start(given: Object, node: str, held: tuple[HollowDevice, ...], log: Log) -> Any:
        async def program() -> None:
            nvml = FakeNvml(held)
            nvml.nvmlInit()
            uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0))
            told = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": uuid}}}
            await real_api.patch(POD.ref("reserve", namespace), Patch.merge(told))
            log(f"reserving GPU {uuid}")
            await asyncio.Event().wait()

        return program() if given["metadata"]["name"] == "reserve" else None

    async with hollow_nodes(real_api, [GPU_NODE], KubeletSettings(on_start=on_start)):
        await real_api.create(POD, pod("whole", namespace, gpus=1, spec={"nodeName": "gpu"}))
        await real_api.create(POD, pod("reserve", namespace, gpus=1, spec={"nodeName": "gpu"}))

        async def told() -> str:
            found = await real_api.get(POD.ref("reserve", namespace), Object)
            return str((found["metadata"].get("annotations") or {}).get("run.ai/reserve_for_gpu_index", ""))

        uuid = await eventually(told)
        assert uuid == shape_devices(GPU_NODE)[1].uuid
        logs = await kubectl("logs", "reserve", "-n", namespace, "--tail=5")
        assert logs == f"reserving GPU {uuid}\n"


SHELL = Image({"sh": ("sh",)}, ("sh", "-c"))


async def test_containers_that_are_processes_have_logs_of_their_own(
    local_cluster: ControlPlane, real_api: HttpApi, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    count = "echo x >> /scratch/x; n=$(wc -l < /scratch/x)"
    scripts = {"first": f'{count}; echo "run $n"; [ $n -gt 1 ] && sleep 60; exit 1', "second": "seq 100; sleep 60"}
    work = {"volumeMounts": [{"name": "work", "mountPath": "/scratch"}]}
    containers = [{"name": name, "image": "r/shell:1", "args": [script], **work} for name, script in scripts.items()]
    spec = {"containers": containers, "volumes": [{"name": "work", "emptyDir": {}}], "nodeName": "gpu"}
    once = {"restartPolicy": "Never", "nodeName": "gpu"}
    brief = {"name": "main", "image": "shell", "args": ["echo a; sleep 0.7; echo b"]}
    runtime = Containers(real_api, Host(tmp_path, local_cluster.files.url, {"shell": SHELL}), restart_seconds=0.1)
    async with hollow_nodes(real_api, [GPU_NODE], runtime=runtime):
        await real_api.create(POD, pod("brief", namespace, spec={**once, "containers": [brief]}))
        await kubectl(
            "wait", "--for=condition=PodReadyToStartContainers", "pod/brief", "-n", namespace, "--timeout=50s"
        )
        assert await kubectl("logs", "-f", "brief", "-n", namespace) == "a\nb\n"
        await kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/brief", "-n", namespace, "--timeout=50s")

        await real_api.create(POD, pod("two", namespace, spec=spec))
        restarted = "jsonpath={.status.containerStatuses[0].restartCount}=1"
        await kubectl("wait", f"--for={restarted}", "pod/two", "-n", namespace, "--timeout=50s")
        await kubectl("wait", "--for=condition=Ready", "pod/two", "-n", namespace, "--timeout=50s")
        assert await kubectl("logs", "two", "-n", namespace, "-c", "second", "--tail=2") == "99\n100\n"
        assert await kubectl("logs", "two", "-n", namespace, "-c", "first", "--previous") == "run 1\n"
        with pytest.raises(AssertionError, match="there is no previous run of container 'second'"):
            await kubectl("logs", "two", "-n", namespace, "-c", "second", "-p")


async def test_many_nodes_and_pods(real_api: HttpApi, namespace: str, eventually: Eventually) -> None:
    shapes = [NodeShape(f"n-{number}", GpuShape(8)) for number in range(50)]
    async with hollow_nodes(real_api, shapes, KubeletSettings(stop_seconds=0)):
        nodes = await real_api.list(NODE, Object)
        assert len(nodes.items) == 50
        for number in range(200):
            spec = {"nodeName": f"n-{number % 50}"}
            await real_api.create(POD, pod(f"p-{number}", namespace, gpus=1, spec=spec))

        async def all_run() -> bool:
            pods = await real_api.list(POD, Object, Selection(namespace=namespace))
            return all(item["status"]["phase"] == "Running" for item in pods.items)

        await eventually(all_run)


# ---------------------------------------------------------------------------------------- processes and components
def test_a_started_control_plane_has_all_its_parts(control_plane_binary: Path, tmp_path: Path) -> None:
    plane = start_cluster(tmp_path / "whole", control_plane_binary, ["kube-scheduler"])
    try:
        assert set(plane.processes()) == {*PARTS, "kube-scheduler"}
    finally:
        plane.stop()


def test_a_crash_is_reported_by_name(control_plane_binary: Path, tmp_path: Path) -> None:
    plane = start_cluster(tmp_path / "crash", control_plane_binary)
    try:
        plane.check()
        victim = plane.processes()["kube-controller-manager"]
        victim.send(signal.SIGKILL)
        wait_for_end([victim], TIMEOUT_SECONDS)
        with pytest.raises(PartError, match="kube-controller-manager was killed by signal 9") as failure:
            plane.check()
        assert failure.value.log.read_text()
    finally:
        plane.stop()
    assert plane.processes() == {}


async def test_components_run_on_the_cluster(local_cluster: ControlPlane) -> None:
    stop, ready, seen = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow(kubeconfig: Path, done: asyncio.Event) -> None:
        await asyncio.sleep(0.3)
        seen.append("component")
        done.set()
        await asyncio.Event().wait()

    def announce() -> None:
        seen.append("announced")
        ready.set()

    async def quick(kubeconfig: Path, done: asyncio.Event) -> None:
        seen.append(kubeconfig.name)
        done.set()
        await asyncio.Event().wait()

    components = [LocalComponent("slow", slow), LocalComponent("quick", quick)]
    plan = ClusterPlan("tests", [NodeShape("only")], components=components)
    running = asyncio.create_task(live(plan, local_cluster, announce, stop))
    await asyncio.wait_for(ready.wait(), TIMEOUT_SECONDS)
    assert seen == ["kubeconfig", "component", "announced"]
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_SECONDS)


async def _crash(kubeconfig: Path, ready: asyncio.Event) -> None:
    raise RuntimeError("cannot go on")


async def _refuse(kubeconfig: Path, ready: asyncio.Event) -> None:
    raise ClusterError("no leases here")


async def _leave(kubeconfig: Path, ready: asyncio.Event) -> None:
    return None


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (LocalComponent("binder", _crash), r"(?s)component binder crashed:.*RuntimeError: cannot go on"),
        (LocalComponent("binder", _leave), "component binder ended unexpectedly"),
        (LocalComponent("binder", _refuse), "component binder: no leases here"),
    ],
)
async def test_the_end_of_a_component_is_reported_by_name(
    local_cluster: ControlPlane, component: LocalComponent, message: str
) -> None:
    plan = ClusterPlan("tests", [], components=[component])
    with pytest.raises(ClusterError, match=message):
        await asyncio.wait_for(live(plan, local_cluster, lambda: None, asyncio.Event()), TIMEOUT_SECONDS)


# -------------------------------------------------------------------------------------------------- the command
@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control_plane_binary: Path) -> Iterator[Path]:
    """A state directory of the test's own; every cluster in it is ended after the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path
    for record in clusters.records():
        clusters.down(record.name)


def kai(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pykai.cli.local", *arguments], capture_output=True, text=True)


def known(name: str) -> clusters.ClusterRecord:
    record = clusters.read_record(name)
    assert record is not None
    return record


async def test_up_status_down_side_by_side(state: Path, eventually: Eventually) -> None:
    first = kai("up", "--name", "one", "--nodes", "2", "--kube-scheduler")
    assert first.returncode == 0, first.stderr
    second = kai("up", "--name", "two", "--nodes", "1", "--gpus", "1", "--time-slices", "4")
    assert second.returncode == 0, second.stderr
    one, two = known("one"), known("two")
    assert f"export KUBECONFIG={one.kubeconfig}" in first.stdout
    for record, nodes in ((one, 2), (two, 1)):
        listed = await kubectl_on(record.kubeconfig)("get", "nodes", "-o", "name")
        assert len(listed.splitlines()) == nodes
    again = kai("up", "--name", "one")
    assert again.returncode == 1
    assert "already running" in again.stderr

    await kubectl_on(one.kubeconfig)("run", "scheduled", "--image=ubuntu")
    await kubectl_on(one.kubeconfig)("wait", "--for=condition=Ready", "pod/scheduled", "--timeout=50s")

    asked = kai("kubectl", "--on", "two", "get", "nodes", "-o", "name")
    assert (asked.returncode, len(asked.stdout.split())) == (0, 1)
    assert "NotFound" in kai("kubectl", "--on", "one", "get", "node", "nowhere").stderr
    shown = json.loads(kai("status", "-o", "json").stdout)
    assert {row["name"]: row["state"] for row in shown} == {"one": "ready", "two": "ready"}
    assert all(part["alive"] for row in shown for part in row["parts"])

    assert kai("down", "--name", "one").returncode == 0
    processes = [one.owner, *one.parts.values()]
    assert not any(process.alive() for process in processes)
    assert [path.name for path in clusters_root().iterdir()] == ["two"]
    assert kai("status").returncode == 0
    assert kai("down", "--all").returncode == 0
    assert list((state / "pykai").iterdir()) == []
    assert kai("status", "--name", "one").returncode == 1
    assert "kai local up --name one" in kai("kubectl", "--on", "one", "version").stderr


async def test_a_crash_ends_the_cluster_and_stays_visible(state: Path, eventually: Eventually) -> None:
    assert kai("up", "--name", "frail", "--nodes", "1").returncode == 0
    record = known("frail")
    record.parts["etcd"].send(signal.SIGKILL)
    assert wait_for_end([record.owner, *record.parts.values()], TIMEOUT_SECONDS) == []
    status = kai("status", "--name", "frail")
    assert status.returncode == 1
    assert "etcd was killed by signal 9" in status.stdout
    assert kai("up", "--name", "frail", "--bare").returncode == 0, "a failed cluster does not block its name"
    assert kai("down", "--name", "frail").returncode == 0
    assert clusters.records() == []


async def test_no_part_outlives_a_killed_owner(state: Path) -> None:
    assert kai("up", "--name", "orphan", "--bare").returncode == 0
    record = known("orphan")
    record.owner.send(signal.SIGKILL)
    assert wait_for_end([record.owner, *record.parts.values()], TIMEOUT_SECONDS) == []
    assert known("orphan").state() == "dead"
    assert kai("down", "--name", "orphan").returncode == 0
    assert not clusters_root().exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("early", [True, False])
async def test_a_signal_ends_run_and_leaves_nothing(
    state: Path, eventually: Eventually, number: signal.Signals, early: bool
) -> None:
    command = [sys.executable, "-m", "pykai.cli.local", "run", "--name", "brief", "--nodes", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:

        def far_enough() -> bool:
            record = clusters.read_record("brief")
            assert process.poll() is None, process.stdout and process.stdout.read()
            return record is not None and record.phase == ("starting" if early else "ready")

        await eventually(far_enough)
        children = _children(process.pid)
        process.send_signal(number)
        output = process.communicate(timeout=TIMEOUT_SECONDS)[0]
    assert process.returncode == 0, output
    assert not any(child.alive() for child in children)
    assert not clusters_root().exists()


def _children(pid: int) -> list[ProcessId]:
    words = [word for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()]
    return [found for word in words if (found := identify(int(word)))]
