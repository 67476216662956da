"""The input and the result of a grouping rule: a pod with its owners, and a group as a value.

Rules read other objects (the RayCluster of a RayJob, a PriorityClass, an existing PodGroup) through `ObjectLookup`
without blocking: the caller answers from its cache. An exception that a lookup raises propagates through every rule.

Invariants of a group: names of sub-groups are unique; a sub-group with `min_sub_group` has children, one without has
pods; at most one sub-group references the pod that was grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pykai.controllers.podgrouper.rules.fields import name_of, namespace_of
from pykai.controllers.podgrouper.rules.jq_sandbox import SANDBOX, JqEvaluator
from pykai.kube.api import Object
from pykai.objects import names


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

    def existing_group(self, group: str) -> Object | None:
        """Return the PodGroup of that name in the pod's namespace."""
        return self.lookup.get(POD_GROUP_API, "PodGroup", namespace_of(self.pod) or self.home, group)


Rule = Callable[[Workload], GroupSpec]
