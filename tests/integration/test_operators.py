"""Workloads of other projects under their real operators, from manifest to end (`make test-operators`).

The operators are built from their Go modules on first use, which takes minutes each. `OPERATORS=jobset,lws` runs those
only. Hollow kubelets end the pods of Jobs; other pods end by annotation `pykai.io/run-seconds`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pykai.local.operators import OPERATORS
from pykai.objects import names

from .conftest import Eventually, kubectl_on
from .mission_cluster import EXAMPLES, Mission, Object, at_work, local_up
from .test_workload_runs import ROOM, pods_of, waits_and_runs

CHOSEN = os.environ.get("OPERATORS") or ",".join(OPERATORS)
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def needs(operator: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(operator not in CHOSEN.split(","), reason=f"OPERATORS={CHOSEN} leaves it out")


@pytest.fixture(scope="module")
def cluster(control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`kai local up --operators ...` with the nodes of the examples; the kubeconfig."""
    options = (f"--nodes-file={EXAMPLES / 'nodes.yaml'}", f"--operators={CHOSEN}", "--job-seconds=5")
    with local_up(tmp_path_factory.mktemp("operators"), *options) as kubeconfig:
        yield kubeconfig


@pytest.fixture
async def mission(cluster: Path, eventually: Eventually) -> AsyncIterator[Mission]:
    async with at_work(kubectl_on(cluster), eventually) as user:
        yield user


def pod_template(container: str, seconds: str = "forever", **resources: object) -> Object:
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": container, "image": "x", **resources}]}
    return {"metadata": {"annotations": {names.RUN_SECONDS: seconds}}, "spec": spec}


def workload(api_version: str, kind: str, name: str, spec: Object, **labels: str) -> Object:
    metadata = {"name": name, "labels": {names.QUEUE_LABEL: "test", **labels}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


async def running(mission: Mission, name: str) -> list[Object]:
    pods = await pods_of(mission, name)
    return [pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]


async def run_count(mission: Mission, name: str, count: int) -> None:
    async def reached() -> bool:
        return len(await running(mission, name)) == count

    await mission.eventually(reached)


async def suspends_and_resumes(mission: Mission, target: str, path: str, pods: int) -> None:
    """Suspend a running workload, see its pods go, resume it, see as many again."""
    name = target.partition("/")[2]
    await run_count(mission, name, pods)
    for value, expected in (("true", 0), ("false", pods)):
        patch = f'[{{"op": "add", "path": "{path}", "value": {value}}}]'
        await mission.kubectl("patch", target, "-n", mission.namespace, "--type=json", "-p", patch)
        await run_count(mission, name, expected)


async def delete(mission: Mission, target: str) -> None:
    """Delete a workload and wait until its pods are gone."""
    await mission.kubectl("delete", target, "-n", mission.namespace)
    name = target.partition("/")[2]

    async def gone() -> bool:
        return not await pods_of(mission, name)

    await mission.eventually(gone)


@needs("jobset")
async def test_a_job_set_waits_whole_and_runs_to_its_end(mission: Mission) -> None:
    await waits_and_runs(mission, "workloads/jobset.yaml", "jobset/jobset-training", 5, "Completed")


@needs("jobset")
async def test_a_job_set_is_suspended_and_resumes(mission: Mission) -> None:
    job: Object = {"parallelism": 2, "completions": 2, "template": pod_template("main", resources=GPU)}
    job["template"]["spec"]["restartPolicy"] = "Never"
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}]}
    await mission.create(workload("jobset.x-k8s.io/v1alpha2", "JobSet", "paused", spec))
    await suspends_and_resumes(mission, "jobset/paused", "/spec/suspend", 2)
    await delete(mission, "jobset/paused")


@needs("jobset")
async def test_a_job_set_of_lower_priority_gives_way_whole(mission: Mission) -> None:
    def job_set(name: str, priority: str) -> Object:
        job: Object = {"parallelism": 8, "completions": 8, "template": pod_template("main", resources=GPU)}
        job["template"]["spec"]["restartPolicy"] = "Never"
        job["template"]["metadata"]["annotations"][names.STOP_SECONDS] = "0"
        labels = {names.PRIORITY_CLASS_LABEL: priority}
        spec = {
            "failurePolicy": {"maxRestarts": 5},
            "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}],
        }
        return workload("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec, **labels)

    await mission.create(job_set("lesser", "train"))
    await run_count(mission, "lesser", 8)
    await mission.create(job_set("greater", "build"))
    await run_count(mission, "greater", 8)
    assert not await running(mission, "lesser")
    await delete(mission, "jobset/greater")
    await run_count(mission, "lesser", 8)
    await delete(mission, "jobset/lesser")


@needs("lws")
async def test_a_leader_worker_set_waits_whole_serves_and_grows(mission: Mission) -> None:
    name = "leaderworkerset-multi-host"
    async with mission.cordoned("dgx-0"):
        await mission.apply("workloads/leaderworkerset.yaml")
        await mission.described("leaderworkerset", name, "GroupsProgressing")
        assert not await running(mission, name)
    await mission.kubectl("wait", "--for=condition=Available", f"lws/{name}", "-n", mission.namespace, "--timeout=50s")
    await run_count(mission, name, 6)
    await mission.kubectl("scale", f"leaderworkerset/{name}", "--replicas=1", "-n", mission.namespace)
    await run_count(mission, name, 3)
    await mission.kubectl("scale", f"leaderworkerset/{name}", "--replicas=2", "-n", mission.namespace)
    await run_count(mission, name, 6)
    await delete(mission, f"leaderworkerset/{name}")


def pytorch_job(name: str, workers: int, seconds: str) -> Object:
    def replicas(count: int) -> Object:
        template = pod_template("pytorch", seconds, resources=GPU)
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    return workload(
        "kubeflow.org/v1",
        "PyTorchJob",
        name,
        {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(workers)}},
    )


@needs("training")
async def test_a_pytorch_job_waits_whole_and_runs_to_its_end(mission: Mission) -> None:
    async with mission.cordoned("dgx-0"):
        await mission.apply(*ROOM)
        await mission.runs("gpu-pod", "older-queue-label")
        await mission.create(pytorch_job("torch", 2, "3"))
        await mission.eventually(lambda: _told_to_wait(mission, "torch", 3))
    where = ("-n", mission.namespace, "--timeout=50s")
    await mission.kubectl("wait", "--for=condition=Succeeded", "pytorchjob/torch", *where)
    await delete(mission, "pytorchjob/torch")


async def _told_to_wait(mission: Mission, name: str, count: int) -> bool:
    pods = await pods_of(mission, name)
    assert not [pod for pod in pods if pod["spec"].get("nodeName")], "a gang starts whole"
    groups = [group for group in await mission.list("podgroups") if name in group["metadata"]["name"]]
    return len(pods) == count and "gang scheduling" in str([group.get("status") for group in groups])


@needs("training")
async def test_a_pytorch_job_is_suspended_and_resumes(mission: Mission) -> None:
    job = pytorch_job("paused", 1, "forever")
    job["spec"]["runPolicy"] = {"suspend": False}
    await mission.create(job)
    await suspends_and_resumes(mission, "pytorchjob/paused", "/spec/runPolicy/suspend", 2)
    await delete(mission, "pytorchjob/paused")


@needs("mpi")
async def test_an_mpi_job_runs_to_its_end(mission: Mission) -> None:
    roles = {
        "Launcher": {"replicas": 1, "template": pod_template("launcher", "3")},
        "Worker": {"replicas": 2, "template": pod_template("worker", resources=GPU)},
    }
    spec = {"runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles}
    await mission.create(workload("kubeflow.org/v2beta1", "MPIJob", "ring", spec))
    where = ("-n", mission.namespace, "--timeout=50s")
    await mission.kubectl("wait", "--for=condition=Succeeded", "mpijob/ring", *where)
    await delete(mission, "mpijob/ring")


@needs("kuberay")
async def test_a_ray_cluster_starts_whole_grows_and_is_suspended(mission: Mission) -> None:
    workers = {"groupName": "gpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 4, "rayStartParams": {}}
    spec = {
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {}, "template": pod_template("ray-head")},
        "workerGroupSpecs": [{**workers, "template": pod_template("ray-worker", resources=GPU)}],
    }
    await mission.create(workload("ray.io/v1", "RayCluster", "rays", spec))
    await run_count(mission, "rays", 3)
    more = '[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}]'
    await mission.kubectl("patch", "raycluster/rays", "-n", mission.namespace, "--type=json", "-p", more)
    await run_count(mission, "rays", 5)
    await suspends_and_resumes(mission, "raycluster/rays", "/spec/suspend", 5)
    await delete(mission, "raycluster/rays")
