"""Simulated workload controllers: the objects and pods that each kind of workload creates.

Owners, names and labels are those of the real controllers, as far as grouping and scheduling read them; services,
rolling updates and container contents are omitted. Each kind is one row of WORKLOADS: the objects that its controller
creates. A deleted child is re-created until it has completed; a Job counts its pods instead (`jobs`), a CronJob creates
Jobs by its schedule (`cron_jobs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pykai.kube import api_resources as known
from pykai.kube.api import Object, Resource
from pykai.kube.api_resources import DEPLOYMENT, JOB, POD, REPLICA_SET, STATEFUL_SET


@dataclass(frozen=True, slots=True)
class Child:
    """An object that should exist. `owner`: the sibling that owns it; empty: the workload itself."""

    resource: Resource
    body: Object
    owner: str = ""

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self.body["metadata"]["name"])


Children = Callable[[Object], Iterator[Child]]


@dataclass(frozen=True, slots=True)
class SimulatedKind:
    """One kind; `status`: the status that grouping reads, written by its controller after the children exist."""

    resource: Resource
    children: Children
    status: Callable[[Object], Object] | None = None


def open_definition(resource: Resource) -> Object:
    """Return a CRD that accepts every object of a kind, for kinds whose own CRD is not part of pykai."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "names": {"plural": resource.plural, "kind": resource.kind},
            "scope": scope,
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


# ------------------------------------------------------------------------------------------------------------- parts
def templated(
    template: Object, name: str, labels: Mapping[str, str] | None = None, spec: Mapping[str, object] | None = None
) -> Object:
    """Return a named object from a template; its controller adds `labels` and fields of `spec`."""
    meta = template.get("metadata") or {}
    own = {"name": name, "labels": {**(meta.get("labels") or {}), **(labels or {})}}
    return {"metadata": {**meta, **own}, "spec": {**(template.get("spec") or {}), **(spec or {})}}


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _prefixed(prefix: str, labels: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}/{key}": value for key, value in labels.items()}


def _count(part: Object, default: int = 1) -> int:
    found = part.get("replicas")
    return default if found is None else int(found)


# ------------------------------------------------------------------------------------------------------------- kinds
def _replicas(obj: Object) -> Iterator[Child]:
    """Return `replicas` identical pods: ReplicaSet, ReplicationController and StatefulSet."""
    for number in range(_count(obj["spec"])):
        yield Child(POD, templated(obj["spec"]["template"], f"{_name(obj)}-{number}"))


def _deployment(obj: Object) -> Iterator[Child]:
    template = obj["spec"]["template"]
    meta = {"name": f"{_name(obj)}-set", "labels": (template.get("metadata") or {}).get("labels") or {}}
    spec = {"replicas": _count(obj["spec"]), "selector": obj["spec"].get("selector"), "template": template}
    yield Child(REPLICA_SET, {"metadata": meta, "spec": spec})


def _job_set(obj: Object) -> Iterator[Child]:
    for row in obj["spec"].get("replicatedJobs") or ():
        for index in range(_count(row)):
            labels = {"jobset-name": _name(obj), "replicatedjob-name": row["name"], "job-index": str(index)}
            labels = _prefixed("jobset.sigs.k8s.io", labels)
            name = f"{_name(obj)}-{row['name']}-{index}"
            pod = templated(row["template"]["spec"]["template"], name, labels)
            pod["metadata"].pop("name")
            yield Child(JOB, templated(row["template"], name, labels, {"template": pod}))


def _leader_worker_set(obj: Object) -> Iterator[Child]:
    spec = obj["spec"]["leaderWorkerTemplate"]
    size, workers = int(spec.get("size", 1)), spec["workerTemplate"]
    leaders = spec.get("leaderTemplate") or workers
    # The StatefulSet between a LeaderWorkerSet and its pods, which are made below.
    empty = {"replicas": 0, "template": {"spec": {}}}
    yield Child(STATEFUL_SET, {"metadata": {"name": _name(obj)}, "spec": empty})
    for group in range(_count(obj["spec"])):
        name = f"{_name(obj)}-{group}"
        yield Child(POD, _member(obj, leaders, name, (group, 0), size), owner=_name(obj))
        for index in range(1, size):
            yield Child(POD, _member(obj, workers, f"{name}-{index}", (group, index), size), owner=_name(obj))


def _member(obj: Object, template: Object, name: str, place: tuple[int, int], size: int) -> Object:
    group, index = place
    labels = {"name": _name(obj), "group-index": str(group), "worker-index": str(index)}
    pod = templated(template, name, _prefixed("leaderworkerset.sigs.k8s.io", labels))
    notes = {**(pod["metadata"].get("annotations") or {}), "leaderworkerset.sigs.k8s.io/size": str(size)}
    pod["metadata"]["annotations"] = notes
    return pod


def _training(field: str) -> Children:
    """Return the children of a Kubeflow training job: replicas by role."""

    def children(obj: Object) -> Iterator[Child]:
        for role, replicas in (obj["spec"].get(field) or {}).items():
            policy = replicas.get("restartPolicy", "Never")
            restarts = policy if policy in ("Always", "OnFailure", "Never") else "Never"
            for index in range(_count(replicas)):
                labels = {"job-name": _name(obj), "replica-type": role.lower(), "replica-index": str(index)}
                labels = _prefixed("training.kubeflow.org", labels)
                name = f"{_name(obj)}-{role.lower()}-{index}"
                yield Child(POD, templated(replicas["template"], name, labels, {"restartPolicy": restarts}))

    return children


def _ray_cluster(obj: Object) -> Iterator[Child]:
    spec = obj["spec"]
    yield _ray_pod(obj, "head", "headgroup", spec["headGroupSpec"]["template"], 0)
    for group in spec.get("workerGroupSpecs") or ():
        for number in range(_count(group)):
            yield _ray_pod(obj, "worker", group["groupName"], group["template"], number)


def _ray_pod(obj: Object, node_type: str, group: str, template: Object, number: int) -> Child:
    labels = {"cluster": _name(obj), "node-type": node_type, "group": group, "is-ray-node": "yes"}
    return Child(POD, templated(template, f"{_name(obj)}-{group}-{number}", _prefixed("ray.io", labels)))


def _ray_parent(field: str) -> Children:
    """Return the child of a RayJob or RayService: one RayCluster."""

    def children(obj: Object) -> Iterator[Child]:
        meta = {"name": f"{_name(obj)}-ray", "labels": obj["metadata"].get("labels") or {}}
        yield Child(_RAY_CLUSTER, {"metadata": meta, "spec": obj["spec"][field]})

    return children


def _ray_job_status(obj: Object) -> Object:
    return {"rayClusterName": f"{_name(obj)}-ray"}


def _custom(group: str, version: str, kind: str) -> Resource:
    return Resource(group, version, f"{kind.lower()}s", kind)


_RAY_CLUSTER = _custom("ray.io", "v1", "RayCluster")
_TRAINING = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
WORKLOADS: tuple[SimulatedKind, ...] = (
    SimulatedKind(REPLICA_SET, _replicas),
    SimulatedKind(known.REPLICATION_CONTROLLER, _replicas),
    SimulatedKind(STATEFUL_SET, _replicas),
    SimulatedKind(DEPLOYMENT, _deployment),
    SimulatedKind(_custom("jobset.x-k8s.io", "v1alpha2", "JobSet"), _job_set),
    SimulatedKind(_custom("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"), _leader_worker_set),
    *(SimulatedKind(_custom("kubeflow.org", "v1", kind), _training(field)) for kind, field in _TRAINING.items()),
    SimulatedKind(_RAY_CLUSTER, _ray_cluster),
    SimulatedKind(_custom("ray.io", "v1", "RayJob"), _ray_parent("rayClusterSpec"), _ray_job_status),
    SimulatedKind(
        _custom("ray.io", "v1", "RayService"),
        _ray_parent("rayClusterConfig"),
        lambda obj: {"activeServiceStatus": _ray_job_status(obj)},
    ),
)


def definitions() -> list[Object]:
    """Return the CRDs of the kinds that are not part of Kubernetes."""
    return [open_definition(row.resource) for row in WORKLOADS if "." in row.resource.group]
