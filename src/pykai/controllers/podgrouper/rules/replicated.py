"""Pods without owners, replicated workloads and jobs: Deployments, StatefulSets, Knative services, Jobs, JobSets.

The pods of a Knative revision start as a gang of its minimum scale, or individually; those of a Deployment share a
group. A revision or Deployment whose pods already have a group each keeps them: a gang of half its pods would wait for
pods that never join it.

A JobSet is a tree of replicated jobs, their replicas and the pods of each replica. Groups of older releases are flat
(or, for jobs that start in order, one per replicated job); a JobSet that has such a group keeps that form, because its
running pods are counted there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import ValidationError, convert

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.defaults import MAX_PARTS
from pykai.controllers.podgrouper.rules.workload import (
    INFERENCE,
    GroupingError,
    GroupSpec,
    SubGroupSpec,
    Workload,
    annotations_of,
    count_at,
    full_name,
    labels_of,
    map_at,
    maps_at,
    name_of,
    namespace_of,
    owner_references,
    positive,
    template_annotations,
    text_at,
    uid_of,
    whole,
)
from pykai.kernels.selectors import selects
from pykai.kube.api import Object
from pykai.objects import names
from pykai.objects.kinds import LabelSelector

_SPARK_NAME, _SPARK_SELECTOR = "spark-app-name", "spark-app-selector"


def pod(work: Workload) -> GroupSpec:
    """Return the group of a pod without owners; driver and executors of one Spark application share a group."""
    spec = defaults.group(work)
    if not is_spark_pod(work.pod):
        return spec
    return replace(spec, name=labels_of(work.pod)[_SPARK_SELECTOR])


def is_spark_pod(obj: Object) -> bool:
    """Whether Spark created the pod."""
    return {_SPARK_NAME, _SPARK_SELECTOR} <= labels_of(obj).keys()


def deployment(work: Workload) -> GroupSpec:
    """Return one group for the Deployment, or one per pod if its pods already have those or the setting requires it."""
    spec = defaults.with_batch_minimum(work)
    if work.settings.deployment_gang and not _keeps_group_per_pod(work, spec, _selected):
        return spec
    return defaults.per_pod(work, spec)


def _keeps_group_per_pod(work: Workload, gang: GroupSpec, siblings: Callable[[Workload], Sequence[Object]]) -> bool:
    """Whether the pods of the gang's owner have one group each, as in older releases; new pods then get their own.

    Two pods in one group, or a group of that owner's kind, prove that they have not.
    """
    kind = gang.owner["kind"]
    if _owner_kind(work.existing_group(gang.name)) == kind:
        return False
    groups = [group for pod in siblings(work) if (group := annotations_of(pod).get(names.POD_GROUP_ANNOTATION))]
    if len(set(groups)) != 1 or len(groups) > 1:
        return len(groups) > 1 and len(set(groups)) == len(groups)
    existing = work.existing_group(groups[0])
    owner = _owner_kind(existing)
    if existing is not None and owner not in (kind, "Pod"):
        raise GroupingError(
            f"unable to determine gang behavior for {kind.lower()} {gang.namespace}/{gang.owner['name']}: "
            f"PodGroup {groups[0]} is owned by {owner or 'nothing'}, expected a {kind} or a Pod"
        )
    return owner == "Pod"


def _owner_kind(group: Object | None) -> str:
    """Return the kind of a group's first owner; empty without one."""
    owners = owner_references(group) if group else []
    return text_at(owners[0], "kind") if owners else ""


def _selected(work: Workload) -> list[Object]:
    """Return the pods that the Deployment selects; an empty selector selects none."""
    try:
        selector = convert(map_at(work.top, "spec", "selector") or {}, LabelSelector)
    except ValidationError as error:
        raise GroupingError(f"spec.selector of Deployment {full_name(work.top)}: {error}") from error
    if not selector.match_labels and not selector.match_expressions:
        return []
    pods = work.lookup.list("v1", "Pod", namespace_of(work.pod), selector.match_labels)
    return [pod for pod in pods if selects(selector, labels_of(pod))]


def stateful_set(work: Workload) -> GroupSpec:
    """Return one group; GroupingError for a minimum above one with ordered pod creation, which would deadlock."""
    spec = defaults.with_batch_minimum(work)
    policy = text_at(work.top, "spec", "podManagementPolicy") or "OrderedReady (default)"
    if spec.min_member > 1 and policy != "Parallel":
        raise GroupingError(
            f"{names.BATCH_MIN_MEMBER} on StatefulSet {full_name(work.top)} requires spec.podManagementPolicy: "
            f"Parallel, found {policy}: its pods are created one after the other"
        )
    return spec


_REVISION_LABEL = "serving.knative.dev/revision"
_MIN_SCALE = "autoscaling.knative.dev/min-scale"


def knative_service(work: Workload) -> GroupSpec:
    """Return the group of the pod's revision, or of the pod."""
    name = work.required_label(_REVISION_LABEL)
    revision = work.lookup.get("serving.knative.dev/v1", "Revision", namespace_of(work.pod), name)
    if revision is None:
        raise GroupingError(f"revision {name} of pod {full_name(work.pod)} does not exist")
    spec = defaults.basic_group(work.seen_from(revision))
    if work.settings.knative_gang and not _keeps_group_per_pod(work, spec, _of_revision):
        return replace(spec, min_member=_min_scale(revision))
    return replace(defaults.per_pod(work, spec), priority_class=INFERENCE)


def _of_revision(work: Workload) -> Sequence[Object]:
    """Return the pods of the pod's revision."""
    revision = {_REVISION_LABEL: labels_of(work.pod)[_REVISION_LABEL]}
    return work.lookup.list("v1", "Pod", namespace_of(work.pod), revision)


def _min_scale(revision: Object) -> int:
    try:
        scale = whole(annotations_of(revision).get(_MIN_SCALE, ""), _MIN_SCALE)
    except GroupingError:
        return 1
    return scale if scale >= 0 else 1


# --------------------------------------------------------------------------------------------------------- jobs
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
    if older != spec.name and _has_legacy_group(work, older):
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
    if wanted:
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
