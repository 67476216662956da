"""The input and the result of a grouping rule: a pod with its owners, and a group as a value.

Rules read other objects (the RayCluster of a RayJob, a PriorityClass, an existing PodGroup) through `ObjectLookup`
without blocking: the caller answers from its cache. An exception that a lookup raises propagates through every rule.

Workload objects are JSON of kinds that others define. Absent and null fields are both None. A field of the wrong type
raises GroupingError with its path, because the message becomes an event on the user's pod.

Invariants of a group: names of sub-groups are unique; a sub-group with `min_sub_group` has children, one without has
pods; at most one sub-group references the pod that was grouped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pykai.controllers.podgrouper.rules.jq_sandbox import SANDBOX, JqEvaluator
from pykai.kube.api import Object
from pykai.objects import names

_WHOLE = re.compile(r"[+-]?0*[0-9]{1,10}", re.ASCII)
_INT32_MAX = 2**31 - 1


class GroupingError(ValueError):
    """The pod cannot be grouped; the message names the invalid field."""


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return the labels of an object, empty if it has none."""
    return text_map_at(obj, "metadata", "labels")


def annotations_of(obj: Object) -> Mapping[str, str]:
    """Return the annotations of an object, empty if it has none."""
    return text_map_at(obj, "metadata", "annotations")


def name_of(obj: Object) -> str:
    """Return the object's own name."""
    return text_at(obj, "metadata", "name")


def namespace_of(obj: Object) -> str:
    """Return the object's namespace, empty for a cluster-wide one."""
    return text_at(obj, "metadata", "namespace")


def uid_of(obj: Object) -> str:
    """Return the object's uid."""
    return text_at(obj, "metadata", "uid")


def full_name(obj: Object) -> str:
    """Return `namespace/name`, for messages."""
    return f"{namespace_of(obj)}/{name_of(obj)}"


def group_version_kind(obj: Object) -> tuple[str, str, str]:
    """Return (group, version, kind); the core group is empty."""
    group, _, version = text_at(obj, "apiVersion").rpartition("/")
    return group, version, text_at(obj, "kind")


def owner_reference(obj: Object) -> Object:
    """Return the owner reference to this object."""
    return {
        "apiVersion": text_at(obj, "apiVersion"),
        "kind": text_at(obj, "kind"),
        "name": name_of(obj),
        "uid": uid_of(obj),
    }


def owner_references(obj: Object) -> list[Object]:
    """Return the owner references of an object."""
    return maps_at(obj, "metadata", "ownerReferences") or []


def value_at(obj: Object, *path: str) -> Any:
    """Return the value at a path of keys; None if any part of the path is absent."""
    found: Any = obj
    for depth, key in enumerate(path):
        if found is None:
            return None
        if not isinstance(found, dict):
            raise _wrong(obj, path[:depth], "a map")
        found = found.get(key)
    return found


def text_at(obj: Object, *path: str) -> str:
    """Return the string at a path, empty if it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _wrong(obj, path, "a string")
    return found


def count_at(obj: Object, *path: str) -> int | None:
    """Return the whole number at a path, None if it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return None
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise _wrong(obj, path, "a whole number")
    return found


def map_at(obj: Object, *path: str) -> Object | None:
    """Return the map at a path, None if it is absent."""
    found = value_at(obj, *path)
    if found is not None and not isinstance(found, dict):
        raise _wrong(obj, path, "a map")
    return found


def text_map_at(obj: Object, *path: str) -> Mapping[str, str]:
    """Return the map of strings at a path, empty if it is absent."""
    found = map_at(obj, *path) or {}
    for key, value in found.items():
        if not isinstance(value, str):
            raise _wrong(obj, (*path, key), "a string")
    return found


def maps_at(obj: Object, *path: str) -> list[Object] | None:
    """Return the list of maps at a path, None if it is absent."""
    found = value_at(obj, *path)
    if found is None:
        return None
    if not isinstance(found, list):
        raise _wrong(obj, path, "a list")
    for index, item in enumerate(found):
        if not isinstance(item, dict):
            raise _wrong(obj, (*path[:-1], f"{path[-1]}[{index}]"), "a map")
    return found


def template_annotations(obj: Object, *path: str) -> Mapping[str, str]:
    """Return the annotations of the pod (or job) template at a path."""
    return text_map_at(obj, *path, "metadata", "annotations")


def whole(text: str, what: str) -> int:
    """Parse the whole number (32 bits) of a label or annotation; `what` names it in the error."""
    if not _WHOLE.fullmatch(text) or abs(int(text)) > _INT32_MAX:
        raise GroupingError(f"{what}: {text!r} is not a whole number")
    return int(text)


def positive(text: str, what: str) -> int:
    """Parse a whole number of at least 1; `what` names it in the error."""
    number = whole(text, what)
    if number < 1:
        raise GroupingError(f"{what}: value {number} must be >= 1")
    return number


def _wrong(obj: Object, path: tuple[str, ...], expected: str) -> GroupingError:
    owner = obj.get("metadata") if isinstance(obj, dict) else None
    of = f" of {obj.get('kind')} {owner['name']}" if isinstance(owner, dict) and "name" in owner else ""
    return GroupingError(f"{'.'.join(path) or 'the value'}{of} must be {expected}")


class ForbiddenError(Exception):
    """The grouper may not read objects of that kind."""


class ObjectLookup(Protocol):
    """Reads of the cluster. Returned objects carry `apiVersion` and `kind`, which items of lists lack."""

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object, None if it does not exist; the namespace is ignored for cluster-scoped kinds.

        Raises ForbiddenError if the grouper may not read the kind.
        """

    def list(self, api_version: str, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Object]:
        """Return objects with all these labels; none if the kind is not installed."""


@dataclass(frozen=True)
class GroupTopology:
    """A topology constraint: its name, and the required and the preferred level; empty: none."""

    name: str = ""
    required: str = ""
    preferred: str = ""

    @property
    def has_level(self) -> bool:
        return bool(self.required or self.preferred)


@dataclass(frozen=True)
class SubGroupSpec:
    """A sub-group. `min_sub_group` None: a leaf with a minimum of `min_member` pods (0 = elastic)."""

    name: str
    min_member: int = 0
    min_sub_group: int | None = None
    parent: str = ""
    pods: tuple[str, ...] = ()
    topology: GroupTopology | None = None

    def taking(self, pod: str) -> SubGroupSpec:
        """Return the sub-group with one more pod, by name."""
        return replace(self, pods=(*self.pods, pod))


@dataclass(frozen=True)
class GroupSpec:
    """A pod group as the workload defines it. Durations in seconds; None: the setting of the scheduler.

    `min_sub_group` None: the minimum is `min_member` pods, otherwise that many direct sub-groups.
    """

    name: str
    namespace: str
    owner: Object
    queue: str
    priority_class: str
    preemptibility: str = ""
    preemption_delay: float | None = None
    staleness_grace_period: float | None = None
    safe_to_consolidate: bool | None = None
    min_member: int = 1
    min_sub_group: int | None = None
    sub_groups: tuple[SubGroupSpec, ...] = ()
    topology: GroupTopology = GroupTopology()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name."""
        return self.namespace, self.name

    def sub_group_of(self, namespace: str, pod: str) -> SubGroupSpec | None:
        """Return the sub-group that references a pod; None without one, or for a pod of another namespace."""
        if namespace != self.namespace:
            return None
        return next((group for group in self.sub_groups if pod in group.pods), None)


POD_GROUP_API = "scheduling.run.ai/v2alpha2"
TRAIN, BUILD, INFERENCE = "train", "build", "inference"


@dataclass(frozen=True)
class GroupingSettings:
    """The settings of grouping, one field per flag of the component.

    `kind_defaults` names the ConfigMap (namespace, name) with priority and preemptibility per kind; None: none.
    """

    scheduler_name: str = names.SCHEDULER_NAME
    queue_label: str = names.QUEUE_LABEL
    node_pool_label: str = names.NODE_POOL_LABEL
    search_legacy_groups: bool = True
    knative_gang: bool = True
    deployment_gang: bool = True
    karta_fallback: bool = True
    kind_defaults: tuple[str, str] | None = None


@dataclass(frozen=True)
class Workload:
    """A pod and its owners: the direct one first, `top` last. `owners` is empty for rules that read only `top`."""

    top: Object
    pod: Object
    owners: tuple[Object, ...]
    settings: GroupingSettings
    lookup: ObjectLookup
    default_priority: str = TRAIN
    jq: JqEvaluator = SANDBOX

    @property
    def chain(self) -> tuple[Object, ...]:
        """Return the owners whose labels and annotations apply, the nearest first."""
        return self.owners or (self.top,)

    @property
    def pod_name(self) -> str:
        return name_of(self.pod)

    @property
    def home(self) -> str:
        """Return the namespace of the workload's objects."""
        return namespace_of(self.top) or namespace_of(self.pod)

    def seen_from(self, top: Object) -> Workload:
        """Return the same pod with this object as its only owner."""
        return replace(self, top=top, owners=())

    def has_priority_class(self, name: str) -> bool:
        """Whether a PriorityClass of that name exists; False for an empty name."""
        return bool(name) and self.lookup.get("scheduling.k8s.io/v1", "PriorityClass", "", name) is not None

    def existing_group(self, group: str) -> Object | None:
        """Return the PodGroup of that name in the pod's namespace."""
        return self.lookup.get(POD_GROUP_API, "PodGroup", namespace_of(self.pod) or self.home, group)

    def has_flat_group(self, group: str) -> bool:
        """Whether an older release created this group, without sub-groups; a running gang keeps its structure."""
        existing = self.existing_group(group)
        return existing is not None and not maps_at(existing, "spec", "subGroups")

    def required_label(self, key: str) -> str:
        """Return a label of the pod; GroupingError without it."""
        value = labels_of(self.pod).get(key)
        if not value:
            raise GroupingError(f'pod {full_name(self.pod)} missing required label "{key}"')
        return value


Rule = Callable[[Workload], GroupSpec]
