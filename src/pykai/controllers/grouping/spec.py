"""What the grouper decides for a pod, as a value: the pod group it belongs to and the sub-group inside it.

Invariants: names of sub-groups are unique; a sub-group with `min_sub_group` has children, one without has pods; at
most one sub-group refers to the pod that was grouped (the cluster's other pods say so themselves, one by one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pykai.controllers.grouping.fields import Object


@dataclass(frozen=True)
class Topology:
    """A topology by name, and the levels in it that must or should hold everything together; empty = no wish."""

    name: str = ""
    required: str = ""
    preferred: str = ""

    @property
    def has_level(self) -> bool:
        return bool(self.required or self.preferred)


@dataclass(frozen=True)
class SubGroup:
    """A part of a pod group. `min_sub_group` None: a leaf, whose minimum is `min_member` pods (0 = elastic)."""

    name: str
    min_member: int = 0
    min_sub_group: int | None = None
    parent: str = ""
    pods: tuple[str, ...] = ()
    topology: Topology | None = None

    def taking(self, pod: str) -> SubGroup:
        """The same sub-group with one more pod, by name."""
        return replace(self, pods=(*self.pods, pod))


@dataclass(frozen=True)
class GroupSpec:
    """A pod group as the workload asks for it. Durations in seconds; None = the scheduler's own setting.

    `min_sub_group` None: the minimum is `min_member` pods; otherwise that many direct sub-groups.
    """

    name: str
    namespace: str
    owner: Object
    queue: str
    priority_class: str
    preemptibility: str = ""
    preemption_delay: float | None = None
    staleness_grace_period: float | None = None
    min_member: int = 1
    min_sub_group: int | None = None
    sub_groups: tuple[SubGroup, ...] = ()
    topology: Topology = Topology()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def sub_group_of(self, namespace: str, pod: str) -> SubGroup | None:
        """The sub-group that refers to a pod; None where none does or the pod lives in another namespace."""
        if namespace != self.namespace:
            return None
        return next((group for group in self.sub_groups if pod in group.pods), None)
