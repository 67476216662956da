"""Pods without owners, and replicated workloads: Deployments, StatefulSets and Knative services.

The pods of a Knative revision start as a gang of its minimum scale, or individually; those of a Deployment share a
group. A revision or Deployment whose pods already have a group each keeps them: a gang of half its pods would wait for
pods that never join it.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import ValidationError, convert

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.workload import (
    INFERENCE,
    GroupingError,
    GroupSpec,
    Workload,
    annotations_of,
    full_name,
    labels_of,
    map_at,
    namespace_of,
    owner_references,
    text_at,
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
    if work.settings.deployment_gang and not _keeps_group_per_pod(work, spec.name):
        return spec
    return defaults.per_pod(work, spec)


def _keeps_group_per_pod(work: Workload, gang: str) -> bool:
    """Whether the Deployment's pods have one group each, as in older releases; new pods are then grouped likewise.

    Two pods in one group, or a group that the Deployment owns, prove that they have not.
    """
    if _owner_kind(work.existing_group(gang)) == "Deployment":
        return False
    groups = [group for pod in _selected(work) if (group := annotations_of(pod).get(names.POD_GROUP_ANNOTATION))]
    if len(set(groups)) != 1 or len(groups) > 1:
        return len(groups) > 1 and len(set(groups)) == len(groups)
    existing = work.existing_group(groups[0])
    owner = _owner_kind(existing)
    if existing is not None and owner not in ("Deployment", "Pod"):
        raise GroupingError(
            f"unable to determine gang behavior for deployment {full_name(work.top)}: "
            f"PodGroup {groups[0]} is owned by {owner or 'nothing'}, expected a Deployment or a Pod"
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
    if work.settings.knative_gang and not _pods_have_own_groups(work, spec.name):
        return replace(spec, min_member=_min_scale(revision))
    return replace(defaults.per_pod(work, spec), priority_class=INFERENCE)


def _pods_have_own_groups(work: Workload, gang: str) -> bool:
    siblings = {_REVISION_LABEL: labels_of(work.pod)[_REVISION_LABEL]}
    pods = work.lookup.list("v1", "Pod", namespace_of(work.pod), siblings)
    groups = (annotations_of(pod).get(names.POD_GROUP_ANNOTATION) for pod in pods)
    return any(existing and existing != gang for existing in groups)


def _min_scale(revision: Object) -> int:
    try:
        scale = whole(annotations_of(revision).get(_MIN_SCALE, ""), _MIN_SCALE)
    except GroupingError:
        return 1
    return scale if scale >= 0 else 1
