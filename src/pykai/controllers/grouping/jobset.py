"""JobSet: a tree of replicated jobs, their replicas, and the pods of each replica.

Groups that older releases made are flat (or, for jobs started in order, one per replicated job); a JobSet that already
has such a group keeps that form, because its running pods are counted there.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import (
    GroupingError,
    Object,
    annotations_of,
    count_at,
    full_name,
    labels_of,
    maps_at,
    positive,
    template_annotations,
    text_at,
)
from pykai.controllers.grouping.segments import MAX_PARTS
from pykai.controllers.grouping.spec import GroupSpec, SubGroup, Topology
from pykai.controllers.grouping.workload import Workload
from pykai.objects import names

_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"


def group(work: Workload) -> GroupSpec:
    """One group for the JobSet: as many of its replicated jobs as must start together."""
    jobs = [_named(work, job) for job in maps_at(work.top, "spec", "replicatedJobs") or []]
    if not jobs:
        raise GroupingError(f"jobset {full_name(work.top)} has no replicatedJobs")
    spec = default.group(work)
    if _has_flat_group(work, spec.name, jobs):
        return _flat(work, spec)
    active = [job for job in jobs if _replicas(job) > 0]
    replicas = sum(map(_replicas, active))
    if replicas > MAX_PARTS:
        raise GroupingError(f"jobset {full_name(work.top)}: {replicas} replicas are more than {MAX_PARTS}")
    tree = [sub_group for job in active for sub_group in _branch(job)]
    return replace(spec, min_member=0, min_sub_group=_jobs_to_start(work, len(active)), sub_groups=_placed(work, tree))


def _named(work: Workload, job: Object) -> Object:
    if not text_at(job, "name"):
        raise GroupingError(f"jobset {full_name(work.top)}: a replicatedJob has no name")
    return job


def _jobs_to_start(work: Workload, jobs: int) -> int:
    wanted = _wanted_minimum(work)
    if wanted is not None:
        return min(wanted, jobs)
    return 1 if _in_order(work) else jobs


def _wanted_minimum(work: Workload) -> int | None:
    wanted = annotations_of(work.top).get(names.BATCH_MIN_MEMBER)
    return None if wanted is None else positive(wanted, f"invalid {names.BATCH_MIN_MEMBER} annotation on JobSet")


def _in_order(work: Workload) -> bool:
    return text_at(work.top, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"


def _replicas(job: Object) -> int:
    replicas = count_at(job, "replicas")
    return 1 if replicas is None else replicas


def _branch(job: Object) -> list[SubGroup]:
    """A replicated job and its replicas."""
    parent, replicas = job["name"], _replicas(job)
    pods, topology = _pods_per_replica(job), _topology(job)
    leaves = [
        SubGroup(f"{parent}-replica-{index}", pods, parent=parent, topology=topology) for index in range(replicas)
    ]
    return [SubGroup(parent, min_sub_group=replicas), *leaves]


def _pods_per_replica(job: Object) -> int:
    wanted = template_annotations(job, "template").get(names.BATCH_MIN_MEMBER)
    if wanted is not None:
        return positive(wanted, f"invalid {names.BATCH_MIN_MEMBER} annotation on replicatedJob template")
    parallelism = count_at(job, "template", "spec", "parallelism")
    return 1 if parallelism is None else parallelism


def _topology(job: Object) -> Topology | None:
    wish = default.annotated_topology(template_annotations(job, "template"))
    return wish if wish.name and wish.has_level else None


def _placed(work: Workload, tree: list[SubGroup]) -> tuple[SubGroup, ...]:
    leaf = f"{_pod_label(work, _JOB_LABEL)}-replica-{_pod_label(work, _INDEX_LABEL)}"
    if all(leaf != sub_group.name for sub_group in tree):
        raise GroupingError(f"pod {full_name(work.pod)}: jobset {full_name(work.top)} has no {leaf}")
    return tuple(sub_group.taking(work.pod_name) if sub_group.name == leaf else sub_group for sub_group in tree)


def _pod_label(work: Workload, key: str) -> str:
    value = labels_of(work.pod).get(key)
    if not value:
        raise GroupingError(f'pod {full_name(work.pod)} missing required label "{key}"')
    return value


def _has_flat_group(work: Workload, base: str, jobs: list[Object]) -> bool:
    candidates = (base, *(f"{base}-{job['name']}" for job in jobs))
    found = (work.existing_group(candidate) for candidate in candidates)
    return any(existing is not None and not maps_at(existing, "spec", "subGroups") for existing in found)


def _flat(work: Workload, spec: GroupSpec) -> GroupSpec:
    group_name = f"{spec.name}-{_pod_label(work, _JOB_LABEL)}" if _in_order(work) else spec.name
    return replace(spec, name=group_name, min_member=_wanted_minimum(work) or 1)
