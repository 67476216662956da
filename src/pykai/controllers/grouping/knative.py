"""Knative services: the pods of a revision start as a gang of its minimum scale, or each on its own.

A revision whose pods already have groups of their own keeps them: half of its pods in one gang and half outside would
let the gang wait for pods that never join it.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.controllers.grouping import default
from pykai.controllers.grouping.fields import (
    GroupingError,
    Object,
    annotations_of,
    full_name,
    labels_of,
    namespace_of,
    whole,
)
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import INFERENCE, Workload
from pykai.objects import names

_REVISION_LABEL = "serving.knative.dev/revision"
_MIN_SCALE = "autoscaling.knative.dev/min-scale"


def group(work: Workload) -> GroupSpec:
    """The group of the pod's revision, or of the pod."""
    revision = _revision(work)
    spec = default.plain(work.seen_from(revision))
    if work.settings.knative_gang and not _pods_stand_alone(work, spec.name):
        return replace(spec, min_member=_min_scale(revision))
    return replace(default.per_pod(work, spec), priority_class=INFERENCE)


def _revision(work: Workload) -> Object:
    name = labels_of(work.pod).get(_REVISION_LABEL)
    if not name:
        raise GroupingError(f'pod {full_name(work.pod)} missing required label "{_REVISION_LABEL}"')
    revision = work.lookup.get("serving.knative.dev/v1", "Revision", namespace_of(work.pod), name)
    if revision is None:
        raise GroupingError(f"revision {name} of pod {full_name(work.pod)} does not exist")
    return revision


def _pods_stand_alone(work: Workload, gang: str) -> bool:
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
