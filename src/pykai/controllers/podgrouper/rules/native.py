"""Pods that reference a group of the Kubernetes Workload API (scheduling.k8s.io).

| Kubernetes | the pod references | it becomes |
|---|---|---|
| 1.35 | a pod group of a Workload, `spec.workloadRef` | a gang for each pod group and replica key of the Workload |
| 1.36 | a PodGroup, `spec.schedulingGroup` | a gang |
| 1.37 | a PodGroup, possibly below CompositePodGroups | a gang of the root, with a sub-group for each group below it |

The group defines how many pods start together. For queue, priority and preemptibility, the labels of the Workload or of
the root take precedence over those of the pod's owners. Our PodGroup is owned by the pod's top owner, as always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pykai.controllers.podgrouper.rules import defaults
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
    maps_at,
    name_of,
    namespace_of,
    text_at,
)
from pykai.kube.api import Object
from pykai.objects import names

WORKLOAD_API = "scheduling.k8s.io/v1alpha1"
SCHEDULING_GROUP_API = "scheduling.k8s.io/v1beta1"
"""PodGroups and CompositePodGroups, in the version that the server serves."""


def rule_of(work: Workload) -> Rule | None:
    """Return the rule of the group that the pod references; None without one, or if it or an owner opts out."""
    if any(_opts_out(obj) for obj in (*work.owners, work.pod)):
        return None
    if names_group(work.pod):
        return _by_scheduling_group
    return _by_workload if map_at(work.pod, "spec", "workloadRef") else None


def names_group(pod: Object) -> bool:
    """Whether a pod names a Kubernetes PodGroup and does not itself opt out."""
    return bool(map_at(pod, "spec", "schedulingGroup")) and not _opts_out(pod)


def _opts_out(obj: Object) -> bool:
    return annotations_of(obj).get(names.IGNORE_WORKLOAD_API) == "true"


def ignored_settings(work: Workload) -> Iterator[str]:
    """Yield a line for each constraint of the pod's group that has no effect."""
    group = rule_of(work) is _by_scheduling_group and _scheduling_group(work)
    if group and maps_at(group, "spec", "schedulingConstraints", "topology"):
        yield (
            f"PodGroup {full_name(group)}: schedulingConstraints.topology ignored: "
            f"name a Topology and its level in the annotations {names.TOPOLOGY} and {names.TOPOLOGY_REQUIRED}"
        )


def min_count(group: Object) -> int:
    """Return how many pods of a Kubernetes PodGroup start together; with a policy other than gang it is 1."""
    return _count(group, "minCount", 1)


# ------------------------------------------------------------------------------------------------------ 1.36 and later
@dataclass(frozen=True)
class _Tree:
    """The groups of a namespace by parent; `leaf` is the PodGroup that `pod` references."""

    composites: Sequence[Object]
    groups: Sequence[Object]
    leaf: str
    pod: str

    def below(self, parent: Object, label: str = "") -> Iterator[SubGroupSpec]:
        """Return the sub-groups below a composite group, which is named `label`; empty composite groups are omitted."""
        for child in _children(self.composites, parent):
            inner = list(self.below(child, name_of(child)))
            if inner:
                yield SubGroupSpec(name_of(child), min_sub_group=self.min_groups(child), parent=label)
                yield from inner
        for child in _children(self.groups, parent):
            pods = (self.pod,) if name_of(child) == self.leaf else ()
            yield SubGroupSpec(name_of(child), min_count(child), parent=label, pods=pods)

    def min_groups(self, composite: Object) -> int:
        """Return how many direct children must start together; GroupingError while fewer exist."""
        needed = _count(composite, "minGroupCount", 0)
        exist = len(_children(self.composites, composite)) + len(_children(self.groups, composite))
        if exist < needed:
            raise GroupingError(f"CompositePodGroup {full_name(composite)} has {exist} of {needed} groups")
        return needed


def _by_scheduling_group(work: Workload) -> GroupSpec:
    """Return the gang of the root above the PodGroup of the pod; GroupingError if a part of it does not exist."""
    group = _scheduling_group(work)
    if group is None:
        name = f"{namespace_of(work.pod)}/{text_at(work.pod, 'spec', 'schedulingGroup', 'podGroupName')}"
        raise GroupingError(f"PodGroup {name} of pod {full_name(work.pod)} does not exist in scheduling.k8s.io")
    root = _root(work, group)
    spec = defaults.group(_with_labels(work, root))
    spec = replace(
        spec,
        name=name_of(root),
        labels={**spec.labels, **labels_of(root)},
        priority_class=text_at(root, "spec", "priorityClassName") or spec.priority_class,
    )
    if root is group:
        return replace(spec, min_member=min_count(group))
    home, lookup = namespace_of(work.pod), work.lookup
    composites = lookup.list(SCHEDULING_GROUP_API, "CompositePodGroup", home, {})
    groups = lookup.list(SCHEDULING_GROUP_API, "PodGroup", home, {})
    tree = _Tree(composites, groups, name_of(group), work.pod_name)
    return replace(spec, min_sub_group=tree.min_groups(root), sub_groups=tuple(tree.below(root)))


def _scheduling_group(work: Workload) -> Object | None:
    name = text_at(work.pod, "spec", "schedulingGroup", "podGroupName")
    return work.lookup.get(SCHEDULING_GROUP_API, "PodGroup", namespace_of(work.pod), name)


def _root(work: Workload, group: Object) -> Object:
    """Return the topmost ancestor of a group, or the group itself if it has no parent."""
    seen: list[str] = []
    while above := _parent(group):
        if above in seen:
            raise GroupingError(f"CompositePodGroup {namespace_of(group)}/{above} is above itself")
        seen.append(above)
        found = work.lookup.get(SCHEDULING_GROUP_API, "CompositePodGroup", namespace_of(work.pod), above)
        if found is None:
            raise GroupingError(f"CompositePodGroup {namespace_of(work.pod)}/{above} does not exist")
        group = found
    return group


def _parent(group: Object) -> str:
    return text_at(group, "spec", "parentCompositePodGroupName")


def _children(groups: Sequence[Object], parent: Object) -> list[Object]:
    found = [group for group in groups if _parent(group) == name_of(parent)]
    return sorted(found, key=name_of)


def _count(group: Object, field: str, otherwise: int) -> int:
    if map_at(group, "spec", "schedulingPolicy", "gang") is None:
        return otherwise
    count = count_at(group, "spec", "schedulingPolicy", "gang", field)
    if count is None or count < 1:
        raise GroupingError(f"{field} of {full_name(group)} must be at least 1")
    return count


# ---------------------------------------------------------------------------------------------------------------- 1.35
def _by_workload(work: Workload) -> GroupSpec:
    """Return the gang of the pod group that the pod references; GroupingError if it does not exist."""
    name, group, key = (
        text_at(work.pod, "spec", "workloadRef", field) for field in ("name", "podGroup", "podGroupReplicaKey")
    )
    found = work.lookup.get(WORKLOAD_API, "Workload", namespace_of(work.pod), name)
    if found is None:
        raise GroupingError(f"Workload {namespace_of(work.pod)}/{name} of pod {full_name(work.pod)} does not exist")
    groups = maps_at(found, "spec", "podGroups") or []
    defined = next((each for each in groups if text_at(each, "name") == group), None)
    if defined is None:
        raise GroupingError(f"Workload {full_name(found)} has no pod group {group!r}")
    is_gang = map_at(defined, "policy", "gang") is not None  # with any other policy pods start individually
    minimum = count_at(defined, "policy", "gang", "minCount") if is_gang else 1
    if minimum is None or minimum < 1:
        raise GroupingError(f"Workload {full_name(found)}: minCount of pod group {group} must be at least 1")
    spec = defaults.group(_with_labels(work, found))
    return replace(
        spec,
        name="-".join(filter(None, (name, group, key))),
        min_member=minimum,
        labels={**spec.labels, **labels_of(found)},
    )


def _with_labels(work: Workload, workload: Object) -> Workload:
    """Return the same pod with a top owner whose labels the Workload's labels override."""
    metadata = {**(work.top.get("metadata") or {}), "labels": {**labels_of(work.top), **labels_of(workload)}}
    top = {**work.top, "metadata": metadata}
    return replace(work, top=top, owners=(*work.owners[:-1], top) if work.owners else (top,))
