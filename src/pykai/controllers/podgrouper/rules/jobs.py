"""Job, CronJob, RunaiJob, AmlJob and JobSet.

A JobSet is a tree of replicated jobs, their replicas and the pods of each replica. Groups of older releases are flat
(or, for jobs that start in order, one per replicated job); a JobSet that has such a group keeps that form, because its
running pods are counted there.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.defaults import MAX_PARTS
from pykai.controllers.podgrouper.rules.fields import (
    GroupingError,
    count_at,
    full_name,
    labels_of,
    maps_at,
    name_of,
    owner_references,
    positive,
    template_annotations,
    text_at,
    uid_of,
)
from pykai.controllers.podgrouper.rules.workload import GroupSpec, SubGroupSpec, Workload
from pykai.kube.api import Object
from pykai.objects import names


def aml_job(work: Workload) -> GroupSpec:
    """Return one gang of as many pods as the Azure ML job has nodes."""
    nodes = count_at(work.top, "spec", "job", "options", "envs", "AZUREML_NODE_COUNT")
    if nodes is None:
        raise GroupingError("azureml envs count not found in spec")
    return replace(defaults.group(work), min_member=nodes)


def job(work: Workload) -> GroupSpec:
    """Return one group for the Job; existing groups per pod, as in older releases, are kept."""
    spec = defaults.group(work)
    older = f"pg-{work.pod_name}-{uid_of(work.top)}"
    if _has_legacy_group(work, older):
        return replace(spec, name=older)
    return replace(spec, min_member=defaults.batch_min_member(work.top) or 1)


def cron_job(work: Workload) -> GroupSpec:
    """Return one group per run: that of the Job that owns the pod."""
    owner = next((ref for ref in owner_references(work.pod) if ref.get("kind") == "Job"), None)
    if owner is None:
        raise GroupingError("no owner reference of type 'Job'")
    name = text_at(owner, "name")
    run = work.lookup.get("batch/v1", "Job", work.home, name)
    if run is None:
        raise GroupingError(f'jobs.batch "{name}" not found')
    return defaults.group(work.seen_from(run))


def runai_job(work: Workload) -> GroupSpec:
    """Return one group per index of the job, named after the pod without the last part of its name."""
    spec = defaults.group(work)
    parallel = (count_at(work.top, "spec", "parallelism") or 1) > 1
    older = f"pg-{work.pod_name if parallel else name_of(work.top)}-{uid_of(work.top)}"
    if _has_legacy_group(work, older):
        return replace(spec, name=older)
    index = work.pod_name.rpartition("-")[0] or work.pod_name
    return replace(spec, name=f"pg-{index}-{uid_of(work.top)}")


def _has_legacy_group(work: Workload, older: str) -> bool:
    return work.settings.search_legacy_groups and work.existing_group(older) is not None


_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"


def job_set(work: Workload) -> GroupSpec:
    """Return one group for the JobSet, with as many of its replicated jobs as must start together."""
    jobs = [_named(work, job) for job in maps_at(work.top, "spec", "replicatedJobs") or []]
    if not jobs:
        raise GroupingError(f"jobset {full_name(work.top)} has no replicatedJobs")
    spec = defaults.group(work)
    if _has_flat_group(work, spec.name, jobs):
        return _flat_group(work, spec)
    active = [job for job in jobs if _replicas(job) > 0]
    replicas = sum(map(_replicas, active))
    if replicas > MAX_PARTS:
        raise GroupingError(f"jobset {full_name(work.top)}: {replicas} replicas are more than {MAX_PARTS}")
    tree = [sub_group for job in active for sub_group in _replicated_job(job)]
    return replace(spec, min_member=0, min_sub_group=_min_jobs(work, len(active)), sub_groups=_with_pod(work, tree))


def _named(work: Workload, job: Object) -> Object:
    if not text_at(job, "name"):
        raise GroupingError(f"jobset {full_name(work.top)}: a replicatedJob has no name")
    return job


def _min_jobs(work: Workload, jobs: int) -> int:
    wanted = defaults.batch_min_member(work.top)
    if wanted is not None:
        return min(wanted, jobs)
    return 1 if _starts_in_order(work) else jobs


def _starts_in_order(work: Workload) -> bool:
    return text_at(work.top, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"


def _replicas(job: Object) -> int:
    replicas = count_at(job, "replicas")
    return 1 if replicas is None else replicas


def _replicated_job(job: Object) -> list[SubGroupSpec]:
    """Return the sub-group of a replicated job and those of its replicas."""
    parent, replicas, template = job["name"], _replicas(job), template_annotations(job, "template")
    wanted = template.get(names.BATCH_MIN_MEMBER)
    if wanted is not None:
        pods = positive(wanted, f"invalid {names.BATCH_MIN_MEMBER} annotation on replicatedJob template")
    else:
        parallelism = count_at(job, "template", "spec", "parallelism")
        pods = 1 if parallelism is None else parallelism
    topology = defaults.annotated_topology(template)
    own_topology = topology if topology.name and topology.has_level else None
    leaves = [
        SubGroupSpec(f"{parent}-replica-{index}", pods, parent=parent, topology=own_topology)
        for index in range(replicas)
    ]
    return [SubGroupSpec(parent, min_sub_group=replicas), *leaves]


def _with_pod(work: Workload, tree: list[SubGroupSpec]) -> tuple[SubGroupSpec, ...]:
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


def _flat_group(work: Workload, spec: GroupSpec) -> GroupSpec:
    group_name = f"{spec.name}-{_pod_label(work, _JOB_LABEL)}" if _starts_in_order(work) else spec.name
    return replace(spec, name=group_name, min_member=defaults.batch_min_member(work.top) or 1)
