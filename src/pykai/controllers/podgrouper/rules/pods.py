"""Pods without a workload, and workloads whose pods are grouped one by one: Deployments and Knative services.

The pods of a Knative revision start as a gang of its minimum scale, or one by one. A revision whose pods already have
groups of their own keeps them: a gang of half its pods would wait for pods that never join it.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.podgrouper.rules import defaults
from pykai.controllers.podgrouper.rules.fields import (
    GroupingError,
    Object,
    annotations_of,
    full_name,
    labels_of,
    namespace_of,
    whole,
)
from pykai.controllers.podgrouper.rules.workload import INFERENCE, GroupSpec, Workload
from pykai.objects import names

_SPARK_NAME, _SPARK_SELECTOR = "spark-app-name", "spark-app-selector"


def pod(work: Workload) -> GroupSpec:
    """A pod without owners; driver and executors of one Spark application share a group."""
    spec = defaults.group(work)
    if not is_spark_pod(work.pod):
        return spec
    return replace(spec, name=labels_of(work.pod)[_SPARK_SELECTOR])


def is_spark_pod(obj: Object) -> bool:
    """Whether Spark created the pod."""
    return {_SPARK_NAME, _SPARK_SELECTOR} <= labels_of(obj).keys()


def deployment(work: Workload) -> GroupSpec:
    """One group per pod: replicas of a service do not wait for each other."""
    return defaults.per_pod(work, defaults.group(work))


_REVISION_LABEL = "serving.knative.dev/revision"
_MIN_SCALE = "autoscaling.knative.dev/min-scale"


def knative_service(work: Workload) -> GroupSpec:
    """The group of the pod's revision, or of the pod."""
    revision = _revision(work)
    spec = defaults.basic_group(work.seen_from(revision))
    if work.settings.knative_gang and not _pods_have_own_groups(work, spec.name):
        return replace(spec, min_member=_min_scale(revision))
    return replace(defaults.per_pod(work, spec), priority_class=INFERENCE)


def _revision(work: Workload) -> Object:
    name = labels_of(work.pod).get(_REVISION_LABEL)
    if not name:
        raise GroupingError(f'pod {full_name(work.pod)} missing required label "{_REVISION_LABEL}"')
    revision = work.lookup.get("serving.knative.dev/v1", "Revision", namespace_of(work.pod), name)
    if revision is None:
        raise GroupingError(f"revision {name} of pod {full_name(work.pod)} does not exist")
    return revision


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
