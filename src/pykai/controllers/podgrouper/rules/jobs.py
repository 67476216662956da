"""Job, CronJob, RunaiJob, AmlJob and JobSet.

A JobSet is a tree of replicated jobs, their replicas and the pods of each replica. Groups of older releases are flat
(or, for jobs that start in order, one per replicated job); a JobSet that has such a group keeps that form, because its
running pods are counted there.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.defaults import MAX_PARTS
from pykai.controllers.podgrouper.rules.workload import (
    GroupingError,
    GroupSpec,
    SubGroupSpec,
    Workload,
    count_at,
    full_name,
    maps_at,
    name_of,
    owner_references,
    positive,
    template_annotations,
    text_at,
    uid_of,
)
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
    jobs = maps_at(work.top, "spec", "replicatedJobs") or []
    if not all(text_at(job, "name") for job in jobs):
        raise GroupingError(f"jobset {full_name(work.top)}: a replicatedJob has no name")
    if not jobs:
        raise GroupingError(f"jobset {full_name(work.top)} has no replicatedJobs")
    spec = defaults.group(work)
    in_order = text_at(work.top, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    if any(map(work.has_flat_group, (spec.name, *(f"{spec.name}-{job['name']}" for job in jobs)))):
        name = f"{spec.name}-{work.required_label(_JOB_LABEL)}" if in_order else spec.name
        return replace(spec, name=name, min_member=defaults.batch_min_member(work.top) or 1)
    active = [job for job in jobs if _replicas(job) > 0]
    replicas = sum(map(_replicas, active))
    if replicas > MAX_PARTS:
        raise GroupingError(f"jobset {full_name(work.top)}: {replicas} replicas are more than {MAX_PARTS}")
    tree = [sub_group for job in active for sub_group in _replicated_job(job)]
    wanted = defaults.batch_min_member(work.top)
    minimum = (1 if in_order else len(active)) if wanted is None else min(wanted, len(active))
    own = f"{work.required_label(_JOB_LABEL)}-replica-{work.required_label(_INDEX_LABEL)}"
    if all(own != sub_group.name for sub_group in tree):
        raise GroupingError(f"pod {full_name(work.pod)}: jobset {full_name(work.top)} has no {own}")
    sub_groups = tuple(part.taking(work.pod_name) if part.name == own else part for part in tree)
    return replace(spec, min_member=0, min_sub_group=minimum, sub_groups=sub_groups)


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
