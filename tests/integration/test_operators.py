"""Workloads of other projects under their real operators, from manifest to end (`make test-operators`).

The operators are built from their Go modules on first use, which takes minutes each. `OPERATORS=jobset,lws` runs those
only. Hollow kubelets end the pods of Jobs; other pods end by annotation `pykai.io/run-seconds`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
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


def mpi_job(name: str, workers: int, seconds: str) -> Object:
    """A launcher, which runs for so long, and workers with a GPU each."""
    roles = {
        "Launcher": {"replicas": 1, "template": pod_template("launcher", seconds)},
        "Worker": {"replicas": workers, "template": pod_template("worker", resources=GPU)},
    }
    spec = {"runPolicy": {"cleanPodPolicy": "Running", "suspend": False}, "mpiReplicaSpecs": roles}
    return workload("kubeflow.org/v2beta1", "MPIJob", name, spec)


@needs("mpi")
async def test_an_mpi_job_waits_whole_and_runs_to_its_end(mission: Mission) -> None:
    async with mission.cordoned("dgx-0"):
        await mission.apply(*ROOM)
        await mission.runs("gpu-pod", "older-queue-label")
        await mission.create(mpi_job("ring", 3, "3"))
        await mission.eventually(lambda: _told_to_wait(mission, "ring", 4))
    where = ("-n", mission.namespace, "--timeout=50s")
    await mission.kubectl("wait", "--for=condition=Succeeded", "mpijob/ring", *where)
    await delete(mission, "mpijob/ring")


@needs("mpi")
async def test_an_mpi_job_is_suspended_and_resumes(mission: Mission) -> None:
    await mission.create(mpi_job("paused", 2, "forever"))
    await suspends_and_resumes(mission, "mpijob/paused", "/spec/runPolicy/suspend", 3)
    await delete(mission, "mpijob/paused")


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


KUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def kueue_queues(namespace: str, gpus: int) -> list[Object]:
    """A quota of Kueue for the Jobs of a namespace."""

    def named(kind: str, name: str, spec: Object) -> Object:
        metadata = {"name": name, **({"namespace": namespace} if kind == "LocalQueue" else {})}
        return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}

    quota = {"name": "nvidia.com/gpu", "nominalQuota": gpus}
    covered = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "any", "resources": [quota]}]}
    return [
        named("ResourceFlavor", "any", {}),
        named("ClusterQueue", "quota", {"namespaceSelector": {}, "resourceGroups": [covered]}),
        named("LocalQueue", "jobs", {"clusterQueue": "quota"}),
    ]


def gang_job(name: str, pods: int, labels: Mapping[str, str], selector: Mapping[str, str] | None = None) -> Object:
    """A Job whose pods, of one GPU each, start together."""
    template: Object = {"spec": {**pod_template("main", resources=GPU)["spec"], "restartPolicy": "Never"}}
    template["spec"] |= {"nodeSelector": selector} if selector else {}
    job = workload("batch/v1", "Job", name, {"parallelism": pods, "completions": pods, "template": template}, **labels)
    job["metadata"]["annotations"] = {names.BATCH_MIN_MEMBER: str(pods)}
    return job


@needs("kueue")
async def test_kueue_admits_jobs_and_what_it_admits_is_placed_whole(mission: Mission) -> None:
    queues = kueue_queues(mission.namespace, gpus=4)
    await mission.create(*queues)
    first, second = (gang_job(name, 3, {KUEUE_LABEL: "jobs"}) for name in ("first", "second"))
    await mission.create(first)
    await run_count(mission, "first", 3)
    await mission.create(second)

    async def held() -> bool:
        waiting = [each for each in await mission.list("workloads") if "second" in each["metadata"]["name"]]
        return "insufficient" in str([each.get("status") for each in waiting])

    await mission.eventually(held)
    assert (await mission.get("job", "second"))["spec"]["suspend"], "Kueue lets it wait, and no pod is there to place"
    assert not await pods_of(mission, "second")
    where = ("-n", mission.namespace, "--timeout=50s")
    await mission.kubectl("wait", "--for=condition=Complete", "job/first", "job/second", *where)
    await mission.kubectl("delete", "jobs", "--all", "-n", mission.namespace)
    await mission.kubectl("delete", "clusterqueue,resourceflavor", "--all")


POOL = "gpus"
AUTOSCALED = {"karpenter.sh/nodepool": POOL}


class Nodes:
    """The nodes that the autoscaler ever made, and those that are there now."""

    def __init__(self, mission: Mission) -> None:
        self._mission = mission
        self.seen: set[str] = set()
        self.now: set[str] = set()

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            found = await self._mission.list("nodes", labels=f"karpenter.sh/nodepool={POOL}")
            self.now = {each["metadata"]["name"] for each in found}
            self.seen |= self.now
            await asyncio.sleep(0.5)

    async def become(self, count: int) -> None:
        """Wait until there are so many."""

        async def reached() -> bool:
            return len(self.now) == count

        await self._mission.eventually(reached, seconds=AUTOSCALER_SECONDS)


AUTOSCALER_SECONDS = 120.0


@pytest.fixture
async def nodes(mission: Mission) -> AsyncIterator[Nodes]:
    """A pool of nodes with eight GPUs each, none at first, four at most; none may be left."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL}
    machine = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["gpu-8"]}
    template = {"requirements": [machine], "nodeClassRef": reference, "expireAfter": "Never"}
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5s", "budgets": [{"nodes": "100%"}],
    }  # fmt: skip
    spec = {"template": {"spec": template}, "disruption": disruption, "limits": {"nvidia.com/gpu": "32"}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL}, "spec": spec}
    kind = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": POOL}}
    await mission.create({**kind, "spec": {}}, pool)
    followed = Nodes(mission)
    following = asyncio.create_task(followed.follow())
    try:
        yield followed
    finally:
        await mission.clear()
        await followed.become(0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await mission.kubectl("delete", "nodepool,kwoknodeclass", POOL)


@needs("karpenter")
async def test_an_autoscaler_adds_nodes_for_a_gang_and_removes_them_after_it(mission: Mission, nodes: Nodes) -> None:
    await mission.create(gang_job("wide", 12, {}, AUTOSCALED))
    await nodes.become(2)
    where = ("-n", mission.namespace, f"--timeout={AUTOSCALER_SECONDS:.0f}s")
    await mission.kubectl("wait", "--for=condition=Complete", "job/wide", *where)
    await nodes.become(0)
    assert len(nodes.seen) == 2, "no node more than the gang needs"


@needs("karpenter")
async def test_an_autoscaler_adds_a_node_for_shares_that_wait(mission: Mission, nodes: Nodes) -> None:
    shares = []
    for number in range(3):
        pod = {"apiVersion": "v1", "kind": "Pod", **pod_template("main")}
        pod["metadata"] = {"name": f"share-{number}", "labels": {names.QUEUE_LABEL: "test"}}
        pod["metadata"]["annotations"] = {names.GPU_FRACTION: "0.5"}
        pod["spec"]["nodeSelector"] = AUTOSCALED
        shares.append(pod)
    await mission.create(*shares)
    await nodes.become(1)
    await run_count(mission, "share", 3)

    async def adjusted() -> bool:
        return not await mission.list("pods", names.SCALING_NAMESPACE)

    await mission.eventually(adjusted, seconds=AUTOSCALER_SECONDS)
    await mission.clear()
    await nodes.become(0)
    assert len(nodes.seen) == 1, "three halves are two devices of one node"


@needs("karpenter")
async def test_an_autoscaler_moves_pods_together_and_removes_the_node_that_is_free(
    mission: Mission, nodes: Nodes
) -> None:
    template = pod_template("main", resources=GPU)
    template["metadata"] = {"labels": {"app": "serving", names.QUEUE_LABEL: "test"}}
    template["spec"] |= {"nodeSelector": AUTOSCALED, "terminationGracePeriodSeconds": 1}
    spec = {"replicas": 12, "selector": {"matchLabels": {"app": "serving"}}, "template": template}
    await mission.create(workload("apps/v1", "Deployment", "serving", spec))
    await nodes.become(2)
    await run_count(mission, "serving", 12)
    await mission.kubectl("scale", "deployment/serving", "--replicas=6", "-n", mission.namespace)
    await nodes.become(1)
    await run_count(mission, "serving", 6)
    assert len(nodes.seen) == 2, "consolidation adds no node"
