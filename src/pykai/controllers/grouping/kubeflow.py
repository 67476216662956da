"""Kubeflow training jobs: a gang of all replicas, or of as many as the run policy asks for."""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import GroupingError, Object, count_at, map_at, name_of, value_at
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import Rule, Workload
from pykai.objects import names

_JOB_NAME = "training.kubeflow.org/job-name"
_LAUNCHER = "Launcher"
_MPI_REPLICAS = "mpiReplicaSpecs"


def gang(field: str, *mandatory: str) -> Rule:
    """The rule of a kind whose replicas are under `spec.<field>`, of which some roles must be present."""

    def rule(work: Workload) -> GroupSpec:
        return replace(default.group(work), min_member=min_available(work.top, field, mandatory))

    return rule


def min_available(job: Object, field: str, mandatory: tuple[str, ...] = ()) -> int:
    """How many pods start together: the run policy's number, else every replica."""
    wanted = scheduling_policy_minimum(job)
    return all_replicas(job, field, mandatory) if wanted is None else wanted


def scheduling_policy_minimum(job: Object) -> int | None:
    """The run policy's own minimum; None where it has none."""
    return count_at(job, "spec", "runPolicy", "schedulingPolicy", "minAvailable")


def all_replicas(job: Object, field: str, mandatory: tuple[str, ...] = ()) -> int:
    """The sum over all roles, each of which must have pods."""
    roles = map_at(job, "spec", field)
    if roles is None:
        raise _misfit(job, f"have a {field} field")
    for role in mandatory:
        if role not in roles:
            raise _misfit(job, f"have a {role} replica spec which is required")
    return sum(_replicas(job, field, role) for role in roles)


def _replicas(job: Object, field: str, role: str) -> int:
    replicas = count_at(job, "spec", field, role, "replicas") or 0
    if replicas <= 0:
        raise _misfit(job, f"allow for 0 {role} pods")
    return replicas


def _misfit(job: Object, what: str) -> GroupingError:
    return GroupingError(f"the type of the job {name_of(job)} doesn't {what}. Please fix the replica field")


def mpi(work: Workload) -> GroupSpec:
    """Launcher and workers together, or the workers alone while the launcher is still to be created."""
    together = min_available(work.top, _MPI_REPLICAS, (_LAUNCHER, "Worker"))
    return replace(default.group(work), min_member=max(0, together - missing_launchers(work)))


def missing_launchers(work: Workload) -> int:
    """Launcher pods the operator creates only once the workers run: the gang must not wait for them."""
    if value_at(work.top, "spec", "launcherCreationPolicy") != "WaitForWorkersReady" or has_launcher(work):
        return 0
    replicas = count_at(work.top, "spec", _MPI_REPLICAS, _LAUNCHER, "replicas")
    return 1 if replicas is None else replicas


def has_launcher(work: Workload) -> bool:
    """Whether a launcher pod exists that is not on its way out."""
    role = {_JOB_NAME: name_of(work.top), names.KUBEFLOW_ROLE_LABEL: "launcher"}
    pods = work.lookup.list("v1", "Pod", work.home, role)
    return any(value_at(pod, "metadata", "deletionTimestamp") is None for pod in pods)
