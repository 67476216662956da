"""Stand-ins for the operators of Kubeflow, Ray, JobSet and LeaderWorkerSet, which are not on a test's cluster.

They make the objects and pods that the true ones make, with the same owners, names and labels, and report in the
workload's status how far it is. What they leave out: services, restarts, and everything inside containers. Pods made
here run for RUN_SECONDS, except those that serve until they are deleted. When a Ray job's program has ended is for the
test to say (`ended`), as Ray itself would.

    KUBECONFIG=... python -m tests.integration.workload_operators [NAMESPACE]

makes the definitions on a local cluster and plays the operators until Ctrl-C, for people who try the examples.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from pykai.controllers.podgrouper.reader import plural_of
from pykai.kube.api import Api, Deletion, Object, Patch, Propagation, Resource, Selection
from pykai.kube.api_resources import JOB, POD, STATEFUL_SET
from pykai.kube.errors import AlreadyExists, NotFound
from pykai.kube.operations import define
from pykai.local.cluster_session import connect
from pykai.objects.names import RUN_SECONDS as RUN_ANNOTATION
from tests.unit.controllers.live import owned_by

RUN_SECONDS = "2"
_FOR_PEOPLE_SECONDS = "60"
_LOOK_SECONDS = 0.2
_IDLE_POD: Object = {"metadata": {"labels": {"idle": "yes"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
_IDLE_SET: Object = {"replicas": 0, "selector": {"matchLabels": {"idle": "yes"}}, "template": _IDLE_POD}
_IDLE_RUN: Object = {"metadata": {}, "spec": {**_IDLE_POD["spec"], "restartPolicy": "Never"}}
IDLE: dict[str, Object] = {
    "Deployment": _IDLE_SET,
    "ReplicaSet": _IDLE_SET,
    "StatefulSet": {**_IDLE_SET, "serviceName": "x"},
    "Job": {"suspend": True, "template": _IDLE_RUN},
    "CronJob": {"suspend": True, "schedule": "@yearly", "jobTemplate": {"spec": {"template": _IDLE_RUN}}},
}
"""Specs of built-in kinds with which Kubernetes' own controllers make no pods."""


def trimmed_definitions() -> list[Object]:
    """The definitions in `crds`."""
    read = [yaml.safe_load(path.read_text()) for path in sorted((Path(__file__).parent / "crds").glob("*.yaml"))]
    return [item for document in read for item in document.get("items", [document])]


def _custom(api_version: str, kind: str) -> Resource:
    group, _, version = api_version.partition("/")
    return Resource(group, version, plural_of(kind), kind)


PYTORCH_JOB = _custom("kubeflow.org/v1", "PyTorchJob")
RAY_JOB = _custom("ray.io/v1", "RayJob")
RAY_CLUSTER = _custom("ray.io/v1", "RayCluster")
JOB_SET = _custom("jobset.x-k8s.io/v1alpha2", "JobSet")
LEADER_WORKER_SET = _custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")


def owned_loosely(owner: Object) -> list[Object]:
    """References to a built-in owner that did not make the child itself and must not claim, or delete, it."""
    return [{**reference, "controller": False} for reference in owned_by(owner)]


def pod_of(template: Object, name: str, owners: list[Object], **labels: str) -> Object:
    """A pod of a template."""
    metadata = template.get("metadata") or {}
    own = {"name": name, "labels": {**metadata.get("labels", {}), **labels}, "ownerReferences": owners}
    return {"metadata": {**metadata, **own}, "spec": template["spec"]}


def for_a_while(pod: Object, seconds: str) -> Object:
    """The pod, or template, with the time that its program takes."""
    metadata = pod.get("metadata") or {}
    notes = {**metadata.get("annotations", {}), RUN_ANNOTATION: seconds}
    return {**pod, "metadata": {**metadata, "annotations": notes}}


def training_pods(job: Object, seconds: str) -> list[Object]:
    """What Kubeflow's training operator makes of a PyTorchJob."""
    name, pods = job["metadata"]["name"], []
    for role, replicas in job["spec"]["pytorchReplicaSpecs"].items():
        template = for_a_while(replicas["template"], seconds)
        template["spec"] = {**template["spec"], "restartPolicy": replicas.get("restartPolicy", "Never")}
        for index in range(replicas["replicas"]):
            labels = {"job-name": name, "replica-type": role.lower(), "replica-index": str(index)}
            labels = {f"training.kubeflow.org/{key}": value for key, value in labels.items()}
            pods.append(pod_of(template, f"{name}-{role.lower()}-{index}", owned_by(job), **labels))
    return pods


def ray_pods(cluster: Object) -> list[Object]:
    """What KubeRay makes of a RayCluster."""
    name, spec = cluster["metadata"]["name"], cluster["spec"]

    def pod(node_type: str, group: str, template: Object, number: int) -> Object:
        labels = {"cluster": name, "node-type": node_type, "group": group, "is-ray-node": "yes"}
        labels = {f"ray.io/{key}": value for key, value in labels.items()}
        return pod_of(template, f"{name}-{group}-{number}", owned_by(cluster), **labels)

    return [
        pod("head", "headgroup", spec["headGroupSpec"]["template"], 0),
        *(
            pod("worker", group["groupName"], group["template"], number)
            for group in spec["workerGroupSpecs"]
            for number in range(group["replicas"])
        ),
    ]


def jobs_of(job_set: Object, seconds: str) -> list[Object]:
    """What JobSet's controller makes of a JobSet."""
    name, jobs = job_set["metadata"]["name"], []
    for replicated in job_set["spec"]["replicatedJobs"]:
        for index in range(replicated["replicas"]):
            labels = {"jobset-name": name, "replicatedjob-name": replicated["name"], "job-index": str(index)}
            labels = {f"jobset.sigs.k8s.io/{key}": value for key, value in labels.items()}
            job_name, spec = f"{name}-{replicated['name']}-{index}", replicated["template"]["spec"]
            template = pod_of(for_a_while(spec["template"], seconds), job_name, [], **labels)
            spec = {**spec, "template": template}
            jobs.append(
                {"metadata": {"name": job_name, "labels": labels, "ownerReferences": owned_by(job_set)}, "spec": spec}
            )
    return jobs


class Operators:
    """All of them on the workloads of one namespace; `ended`: names of Ray jobs whose program has ended."""

    def __init__(self, api: Api, namespace: str, run_seconds: str = RUN_SECONDS) -> None:
        self._api = api
        self._namespace = namespace
        self._run_seconds = run_seconds
        self.ended: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        kinds: dict[Resource, Callable[[Object], Awaitable[None]]] = {
            PYTORCH_JOB: self._train,
            RAY_JOB: self._run_ray_job,
            RAY_CLUSTER: self._run_ray_cluster,
            JOB_SET: self._run_jobs,
            LEADER_WORKER_SET: self._serve,
        }
        while True:
            for kind, reconcile in kinds.items():
                for item in await self._list(kind):
                    if "deletionTimestamp" not in item["metadata"]:
                        with contextlib.suppress(NotFound):  # deleted since it was listed
                            await reconcile({"apiVersion": kind.api_version, "kind": kind.kind, **item})
            await asyncio.sleep(_LOOK_SECONDS)

    # ----------------------------------------------------------------------------------------------- the workloads
    async def _train(self, job: Object) -> None:
        wanted = training_pods(job, self._run_seconds)
        await self._create(POD, wanted)
        phases = await self._phases(wanted)
        await self._tell(PYTORCH_JOB, job, Running=_all(phases, "Running"), Succeeded=_all(phases, "Succeeded"))

    async def _run_ray_job(self, job: Object) -> None:
        name = job["metadata"]["name"]
        cluster, status = f"{name}-ray", job.get("status") or {}
        if name in self.ended and job["spec"].get("shutdownAfterJobFinishes"):
            await self._status(RAY_JOB, job, {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"})
            with contextlib.suppress(NotFound):
                how = Deletion(propagation=Propagation.BACKGROUND)
                await self._api.delete(RAY_CLUSTER.ref(cluster, self._namespace), how)
            return
        metadata = {"name": cluster, "labels": job["metadata"].get("labels", {}), "ownerReferences": owned_by(job)}
        await self._create(RAY_CLUSTER, [{"metadata": metadata, "spec": job["spec"]["rayClusterSpec"]}])
        await self._status(RAY_JOB, job, {"rayClusterName": cluster, "jobStatus": status.get("jobStatus", "")})

    async def _run_ray_cluster(self, cluster: Object) -> None:
        wanted = ray_pods(cluster)
        await self._create(POD, wanted)
        up = [phase for phase in await self._phases(wanted[:1]) if phase == "Running"]
        (job,) = cluster["metadata"]["ownerReferences"]
        if up and job["name"] not in self.ended:
            ref = RAY_JOB.ref(job["name"], self._namespace).sub("status")
            await self._api.patch(ref, Patch.merge({"status": {"jobStatus": "RUNNING"}}))

    async def _run_jobs(self, job_set: Object) -> None:
        wanted = jobs_of(job_set, self._run_seconds)
        await self._create(JOB, wanted)
        names = {job["metadata"]["name"] for job in wanted}
        done = [job for job in await self._list(JOB) if job["metadata"]["name"] in names and _has(job, "Complete")]
        await self._tell(JOB_SET, job_set, Completed=len(done) == len(wanted))

    async def _serve(self, lws: Object) -> None:
        """Leaders belong to the set's StatefulSet, workers to one that belongs to their leader."""
        name, spec = lws["metadata"]["name"], lws["spec"]["leaderWorkerTemplate"]
        leaders = await self._idle_set(name, owned_by(lws))
        pods = []
        for group in range(lws["spec"]["replicas"]):
            leader = self._member(lws, leaders, f"{name}-{group}", group, 0)
            (made,) = await self._create(POD, [leader])
            workers = await self._idle_set(f"{name}-{group}", owned_by({"apiVersion": "v1", "kind": "Pod", **made}))
            rest = [
                self._member(lws, workers, f"{name}-{group}-{index}", group, index) for index in range(1, spec["size"])
            ]
            await self._create(POD, rest)
            pods += [leader, *rest]
        await self._tell(LEADER_WORKER_SET, lws, Available=_all(await self._phases(pods), "Running"))

    def _member(self, lws: Object, owner: Object, name: str, group: int, index: int) -> Object:
        spec = lws["spec"]["leaderWorkerTemplate"]
        template = spec.get("leaderTemplate", spec["workerTemplate"]) if index == 0 else spec["workerTemplate"]
        labels = {"name": lws["metadata"]["name"], "group-index": str(group), "worker-index": str(index)}
        labels = {f"leaderworkerset.sigs.k8s.io/{key}": value for key, value in labels.items()}
        pod = pod_of(template, name, owned_loosely(owner), **labels)
        pod["metadata"]["annotations"] = {"leaderworkerset.sigs.k8s.io/size": str(spec["size"])}
        return pod

    async def _idle_set(self, name: str, owners: list[Object]) -> Object:
        metadata = {"name": name, "ownerReferences": owners}
        (made,) = await self._create(STATEFUL_SET, [{"metadata": metadata, "spec": IDLE["StatefulSet"]}])
        return {"apiVersion": STATEFUL_SET.api_version, "kind": STATEFUL_SET.kind, **made}

    # ------------------------------------------------------------------------------------------------- the server
    async def _list(self, kind: Resource) -> list[Object]:
        return list((await self._api.list(kind, Object, Selection(self._namespace))).items)

    async def _create(self, kind: Resource, wanted: Iterable[Object]) -> list[Object]:
        """Create what is missing; gives everything as it is."""
        made = []
        for item in wanted:
            try:
                made.append(await self._api.create(kind, item, self._namespace))
            except AlreadyExists:
                made.append(await self._api.get(kind.ref(item["metadata"]["name"], self._namespace), Object))
        return made

    async def _phases(self, pods: Iterable[Object]) -> list[str]:
        names = {pod["metadata"]["name"] for pod in pods}
        return [pod["status"]["phase"] for pod in await self._list(POD) if pod["metadata"]["name"] in names]

    async def _tell(self, kind: Resource, item: Object, **conditions: bool) -> None:
        rows = [{"type": name, "status": str(value)} for name, value in conditions.items()]
        await self._status(kind, item, {"conditions": rows})

    async def _status(self, kind: Resource, item: Object, status: Object) -> None:
        known = item.get("status") or {}
        if any(known.get(key) != value for key, value in status.items()):
            ref = kind.ref(item["metadata"]["name"], self._namespace).sub("status")
            await self._api.patch(ref, Patch.merge({"status": status}))


def _all(phases: list[str], phase: str) -> bool:
    return bool(phases) and set(phases) == {phase}


def _has(item: Object, condition: str) -> bool:
    rows: list[dict[str, Any]] = (item.get("status") or {}).get("conditions") or []
    return any(row["type"] == condition and row["status"] == "True" for row in rows)


async def _for_people(kubeconfig: Path, namespace: str) -> None:
    async with connect(kubeconfig) as api:
        await define(api, trimmed_definitions())
        print(f"playing the operators in namespace {namespace} until Ctrl-C", flush=True)
        await Operators(api, namespace, _FOR_PEOPLE_SECONDS).run()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Play the operators of PyTorchJob, RayJob, JobSet and others.")
    options.add_argument("namespace", nargs="?", default="default", help="where their workloads are (default)")
    chosen = options.parse_args()
    if not os.environ.get("KUBECONFIG"):
        sys.exit("KUBECONFIG is not set: export the line that `kai local up` printed")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_for_people(Path(os.environ["KUBECONFIG"]), chosen.namespace))
