"""Kubeflow training jobs: a gang of all replicas, or of `minAvailable` of the run policy.

A PyTorchJob has a sub-group for the master and one for the workers, optionally in segments. The minimum of the gang
covers both: what exceeds the master is the minimum of the workers. Segments beyond it are elastic, with minimum 0.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.defaults import ceil_div, checked_count, segment_topology
from pykai.controllers.podgrouper.rules.workload import (
    GroupingError,
    GroupSpec,
    Rule,
    SubGroupSpec,
    Workload,
    annotations_of,
    count_at,
    full_name,
    labels_of,
    map_at,
    name_of,
    positive,
    template_annotations,
    value_at,
    whole,
)
from pykai.kube.api import Object
from pykai.objects import names

_JOB_NAME = "training.kubeflow.org/job-name"
_LAUNCHER = "Launcher"
_MPI_REPLICAS = "mpiReplicaSpecs"


def gang(field: str, *mandatory: str) -> Rule:
    """Return the rule of a kind whose replicas are under `spec.<field>`; `mandatory` roles must be present."""

    def rule(work: Workload) -> GroupSpec:
        return replace(defaults.group(work), min_member=min_available(work.top, field, mandatory))

    return rule


def min_available(job: Object, field: str, mandatory: tuple[str, ...] = ()) -> int:
    """Return the minimum of the gang: `minAvailable` of the run policy, else all replicas."""
    wanted = scheduling_policy_minimum(job)
    return all_replicas(job, field, mandatory) if wanted is None else wanted


def scheduling_policy_minimum(job: Object) -> int | None:
    """Return the minimum of the run policy; None: not set."""
    return count_at(job, "spec", "runPolicy", "schedulingPolicy", "minAvailable")


def all_replicas(job: Object, field: str, mandatory: tuple[str, ...] = ()) -> int:
    """Return the number of replicas of all roles, each of which must have at least one."""
    roles = map_at(job, "spec", field)
    if roles is None:
        raise _invalid_job(job, f"have a {field} field")
    for role in mandatory:
        if role not in roles:
            raise _invalid_job(job, f"have a {role} replica spec which is required")
    total = 0
    for role in roles:
        replicas = count_at(job, "spec", field, role, "replicas") or 0
        if replicas <= 0:
            raise _invalid_job(job, f"allow for 0 {role} pods")
        total += replicas
    return total


def _invalid_job(job: Object, what: str) -> GroupingError:
    return GroupingError(f"the type of the job {name_of(job)} doesn't {what}. Please fix the replica field")


def mpi(work: Workload) -> GroupSpec:
    """Return a gang of launcher and workers, or of the workers alone while the launcher does not exist yet."""
    together = min_available(work.top, _MPI_REPLICAS, (_LAUNCHER, "Worker"))
    return replace(defaults.group(work), min_member=max(0, together - missing_launchers(work)))


def missing_launchers(work: Workload) -> int:
    """Return the launchers that the operator creates once the workers run: the gang must not wait for them."""
    if value_at(work.top, "spec", "launcherCreationPolicy") != "WaitForWorkersReady" or has_launcher(work):
        return 0
    launchers = count_at(work.top, "spec", _MPI_REPLICAS, _LAUNCHER, "replicas") or 0
    if launchers <= 0:
        raise _invalid_job(work.top, f"allow for 0 {_LAUNCHER} pods")
    return launchers


def has_launcher(work: Workload) -> bool:
    """Whether a launcher pod exists that is not terminating."""
    role = {_JOB_NAME: name_of(work.top), names.KUBEFLOW_ROLE_LABEL: "launcher"}
    pods = work.lookup.list("v1", "Pod", work.home, role)
    return any(value_at(pod, "metadata", "deletionTimestamp") is None for pod in pods)


_REPLICAS = "pytorchReplicaSpecs"
_ROLE = "training.kubeflow.org/replica-type"
_INDEX = "training.kubeflow.org/replica-index"
_MASTER, _WORKER = "master", "worker"
_WORKER_TEMPLATE = ("spec", _REPLICAS, "Worker", "template")


def pytorch_job(work: Workload) -> GroupSpec:
    """Return a gang of master and workers."""
    total = scheduling_policy_minimum(work.top)
    if total is None:
        replicas = all_replicas(work.top, _REPLICAS)
        elastic = count_at(work.top, "spec", "elasticPolicy", "minReplicas")
        total = replicas if elastic is None else elastic
    masters = count_at(work.top, "spec", _REPLICAS, "Master", "replicas") or 0
    master = (_with_pod(work, SubGroupSpec(_MASTER, masters)),) if masters > 0 else ()
    workers = _workers(work, max(0, total - masters))
    return replace(defaults.group(work), min_member=total, sub_groups=(*master, *workers))


def _workers(work: Workload, minimum: int) -> tuple[SubGroupSpec, ...]:
    if map_at(work.top, "spec", _REPLICAS, "Worker") is None:
        return ()
    declared = count_at(work.top, "spec", _REPLICAS, "Worker", "replicas")
    replicas = 1 if declared is None else declared
    template = template_annotations(work.top, *_WORKER_TEMPLATE)
    wanted = annotations_of(work.pod).get(names.SEGMENT_SIZE) or template.get(names.SEGMENT_SIZE)
    size = positive(wanted, f"annotation {names.SEGMENT_SIZE}") if wanted else None
    if size is not None and replicas > 0:
        return _segmented(work, replicas, size, minimum)
    return (_with_pod(work, SubGroupSpec(_WORKER, minimum)),)


def _segmented(work: Workload, replicas: int, size: int, minimum: int) -> tuple[SubGroupSpec, ...]:
    """Return the workers in segments; those beyond the minimum of the workers are elastic."""
    count, needed = checked_count(ceil_div(replicas, size)), ceil_div(minimum, size)
    topology = segment_topology(work, template_annotations(work.top, *_WORKER_TEMPLATE))
    segments = [
        SubGroupSpec(
            f"{_WORKER}-{index}",
            min(size, replicas - index * size) if index < needed else 0,
            parent=_WORKER,
            topology=topology,
        )
        for index in range(count)
    ]
    if _role(work) == _WORKER:
        where = f"pod {full_name(work.pod)}: label {_INDEX}"
        index = whole(labels_of(work.pod).get(_INDEX, ""), where)
        if index < 0:
            raise GroupingError(f"{where}: {index} must not be negative")
        own = index // size
        if own >= count:
            raise GroupingError(f"{where} lies beyond the job's {count} segments")
        segments[own] = segments[own].taking(work.pod_name)
    return (SubGroupSpec(_WORKER, min_sub_group=count), *segments)


def _with_pod(work: Workload, sub_group: SubGroupSpec) -> SubGroupSpec:
    return sub_group.taking(work.pod_name) if _role(work) == sub_group.name else sub_group


def _role(work: Workload) -> str:
    return labels_of(work.pod).get(_ROLE, "")
