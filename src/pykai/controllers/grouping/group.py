"""The grouper in one function: a pod in, the group it belongs to out."""

from __future__ import annotations

from pykai.controllers.grouping.assignment import with_node_pool
from pykai.controllers.grouping.fields import GroupingError, Object, annotations_of, owner_references, text_at, value_at
from pykai.controllers.grouping.kinds import group_workload
from pykai.controllers.grouping.lookup import Lookup
from pykai.controllers.grouping.owners import Ownership, ownership, skips_grouping
from pykai.controllers.grouping.spec import GroupSpec
from pykai.controllers.grouping.workload import Settings, Workload
from pykai.objects import names


def group_pod(pod: Object, lookup: Lookup, settings: Settings) -> GroupSpec | None:
    """The pod group a pod belongs to; None where the grouper must leave the pod alone.

    Raises GroupingError with a text for the user; whatever `lookup` raises passes through.
    """
    work = workload_of(pod, lookup, settings)
    return None if work is None else group_of(work)


def workload_of(pod: Object, lookup: Lookup, settings: Settings) -> Workload | None:
    """The pod with everything that owns it; None where the grouper must leave the pod alone."""
    if is_left_alone(pod, settings):
        return None
    # Items of a list carry neither field, and a group that belongs to its pod refers to both.
    pod = {**pod, "apiVersion": pod.get("apiVersion") or "v1", "kind": pod.get("kind") or "Pod"}
    found = _ownership(pod, lookup)
    if found is None or any(skips_grouping(owner) for owner in found.owners):
        return None
    return Workload(found.top, pod, found.owners, settings, lookup)


def group_of(work: Workload) -> GroupSpec:
    """The pod group of a workload's pod, in the pod's node pool."""
    return with_node_pool(group_workload(work), work.pod, work.settings)


def is_left_alone(pod: Object, settings: Settings) -> bool:
    """Whether a pod is not ours, wants no group, or was put in one by its user (a pod without owners only)."""
    user_assigned = names.POD_GROUP_ANNOTATION in annotations_of(pod) and not owner_references(pod)
    return text_at(pod, "spec", "schedulerName") != settings.scheduler_name or skips_grouping(pod) or user_assigned


def _ownership(pod: Object, lookup: Lookup) -> Ownership | None:
    """The pod's owners; None for a pod on its way out whose owners are already gone."""
    try:
        return ownership(pod, lookup)
    except GroupingError:
        if value_at(pod, "metadata", "deletionTimestamp") is None:
            raise
        return None
