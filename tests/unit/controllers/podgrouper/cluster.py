"""A cluster in memory for the grouping tests, and short ways to write its objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykai.controllers.podgrouper.grouping import group_of, has_labels, workload_of
from pykai.controllers.podgrouper.rules.workload import ForbiddenError, GroupingSettings, GroupSpec, Workload
from pykai.controllers.podgrouper.rules.workload_kinds import group_workload

Object = dict[str, Any]
CLUSTER_WIDE = {"PriorityClass", "Karta"}


class Memory:
    """A Lookup over a few objects; kinds in `forbidden` may not be read."""

    def __init__(self, *objects: Object, forbidden: frozenset[str] = frozenset()) -> None:
        self.objects = objects
        self.forbidden = forbidden

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        if kind in self.forbidden:
            raise ForbiddenError(kind)
        found = self._of(api_version, kind, namespace)
        return next((o for o in found if o["metadata"]["name"] == name), None)

    def list(self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        found = self._of(api_version, kind, namespace)
        return [o for o in found if has_labels(o["metadata"].get("labels"), labels)]

    def _of(self, api_version: str, kind: str, namespace: str) -> Sequence[Object]:
        home = "ns" if kind in CLUSTER_WIDE else namespace
        return [
            o
            for o in self.objects
            if (o["apiVersion"], o["kind"], o["metadata"]["namespace"]) == (api_version, kind, home)
        ]


def obj(api_version: str, kind: str, name: str = "w", **parts: Any) -> Object:
    """An object of namespace `ns` with uid `u-<name>`; labels, annotations and owners go to its metadata."""
    metadata = {"name": name, "namespace": "ns", "uid": f"u-{name}"}
    keys = {
        "labels": "labels",
        "annotations": "annotations",
        "owners": "ownerReferences",
        "deleted": "deletionTimestamp",
    }
    metadata |= {keys[key]: parts.pop(key) for key in list(parts) if key in keys}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def pod(name: str = "p", **parts: Any) -> Object:
    spec = {"schedulerName": "kai-scheduler", **parts.pop("spec", {})}
    return obj("v1", "Pod", name, spec=spec, **parts)


def ref(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def priority_class(name: str) -> Object:
    return obj("scheduling.k8s.io/v1", "PriorityClass", name)


def pod_group(name: str, **spec: Any) -> Object:
    return obj("scheduling.run.ai/v2alpha2", "PodGroup", name, spec=spec)


def grouped(top: Object, member: Object, *others: Object, settings: GroupingSettings | None = None) -> GroupSpec:
    """The group of a pod directly below a top owner."""
    return group_workload(Workload(top, member, (top,), settings or GroupingSettings(), Memory(*others)))


def tree(spec: GroupSpec) -> list[tuple[Any, ...]]:
    """Sub-groups as (name, parent, minimum): `n` pods or `(n,)` sub-groups."""
    return [
        (g.name, g.parent, g.min_member if g.min_sub_group is None else (g.min_sub_group,)) for g in spec.sub_groups
    ]


def home(spec: GroupSpec) -> list[str]:
    """The sub-groups that refer to some pod."""
    return [group.name for group in spec.sub_groups if group.pods]


def group_pod(pod: Object, lookup: Memory) -> GroupSpec | None:
    """The group of a pod by the default settings; None if the grouper must leave it alone."""
    work = workload_of(pod, lookup, GroupingSettings())
    return None if work is None else group_of(work)
