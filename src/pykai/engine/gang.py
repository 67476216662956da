"""Gang semantics: when a gang is ready, which pods it places next, which it loses first (docs/concepts/gangs.md).

All functions only read the trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pykai.engine.plugin_api import MemberOrder, PodOrder
from pykai.engine.trial import Trial
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.status import IS_ACTIVE_ALLOCATED, Status

Member = PodSet | SubGroupSet
_PENDING = int(Status.PENDING)
_NO_LABELS: Mapping[str, str] = {}


@dataclass
class GangOrders:
    """The order of pods and sub-groups within gangs. Sorted pods are cached, as sort keys do not change in a cycle."""

    pod_order: Sequence[PodOrder]
    member_order: Sequence[MemberOrder]
    _pods: dict[int, list[int]] = field(default_factory=dict)
    _next: dict[int, list[int]] = field(default_factory=dict)
    _read: int = 0

    @cached_property
    def _labels(self) -> frozenset[str]:
        """The labels by which pods are distinguished."""
        return frozenset([plugin.pod_label for plugin in self.pod_order])

    def pods(self, trial: Trial, gang: int) -> list[int]:
        """Return the gang's pods in the order of placement."""
        found = self._pods.get(gang)
        if found is None:
            found = trial.snapshot.gangs.pods(gang)
            if len(found) > 1:
                found = self._sorted(trial.snapshot.pods.objects, found)
            self._pods[gang] = found
        return found

    def _sorted(self, objects: Sequence[Any], pods: Sequence[int]) -> list[int]:
        """Sort pods by plugins first, then age, then uid."""
        metas = [objects[pod].metadata for pod in pods]
        labels = [meta.labels or _NO_LABELS for meta in metas]
        columns: list[list[Any]] = []
        if not all(map(self._labels.isdisjoint, labels)):
            columns = [keys for plugin in self.pod_order if (keys := _keys(plugin, labels)) is not None]
        created = [at.timestamp() if (at := meta.creation_timestamp) else 0.0 for meta in metas]
        keyed = zip(*columns, created, [meta.uid for meta in metas], pods, strict=True)
        return [key[-1] for key in sorted(keyed)]

    def member_key(self, served: int, threshold: int) -> tuple[Any, ...]:
        return tuple(plugin.member_key(served, threshold) for plugin in self.member_order)

    def next_pods(self, trial: Trial) -> dict[int, list[int]]:
        """Return the cache of `pods_to_place` by gang, without gangs one of whose pods has moved."""
        moved = trial.moved
        if self._read < len(moved):
            gang_of = trial.gang
            for gang in {gang_of[pod] for pod in moved[self._read :]}:
                self._next.pop(gang, None)
            self._read = len(moved)
        return self._next

    def members(self, trial: Trial, group: SubGroupSet) -> Sequence[Member]:
        """Return the children of a set in the order of placement."""
        if len(group.children) == 1:
            return group.children
        return sorted(group.children, key=lambda m: (self.member_key(served(trial, m), threshold(m)), m.name))


def _keys(plugin: PodOrder, labels: Sequence[Mapping[str, str]]) -> list[Any] | None:
    """Return the keys of pods by one label; None where they are the same for all."""
    name = plugin.pod_label
    values = [pod_labels.get(name) for pod_labels in labels]
    distinct = set(values)
    if len(distinct) == 1:
        return None
    key_of = {value: plugin.pod_key(value) for value in distinct}
    return [key_of[value] for value in values]


def threshold(member: Member) -> int:
    return member.min_available if isinstance(member, PodSet) else member.threshold


def served(trial: Trial, member: Member) -> int:
    """Return the number of placed pods of a podset, or of satisfied children of a set."""
    if isinstance(member, PodSet):
        return trial.active_allocated[member.row]
    return sum(satisfied(trial, child) for child in member.children)


def satisfied(trial: Trial, member: Member) -> bool:
    return served(trial, member) >= threshold(member)


def ready(trial: Trial, gang: int) -> bool:
    """Whether enough pods exist for the gang to start."""
    gangs = trial.snapshot.gangs
    if gang not in gangs.trees:
        return alive(trial, gangs.first_podset[gang]) >= gangs.podset_min[gangs.first_podset[gang]]
    return _ready(trial, gangs.trees[gang])


def alive(trial: Trial, podset: int) -> int:
    """Return the number of placed and pending pods of a podset, without gated ones."""
    return trial.active_allocated[podset] + trial.pending[podset]


def _ready(trial: Trial, member: Member) -> bool:
    if isinstance(member, PodSet):
        return alive(trial, member.row) >= member.min_available
    return sum(_ready(trial, child) for child in member.children) >= member.threshold


def pods_to_place(trial: Trial, orders: GangOrders, gang: int) -> list[int]:
    """Return the pods to place next: those missing from the minimum, or one more where the gang has it. Read only."""
    gangs = trial.snapshot.gangs
    if trial.virtual:
        return _next(trial, orders, gang, _waiting(trial, orders, gang))
    if gang in gangs.trees:
        if not any(trial.pending[gangs.first_podset[gang] : gangs.first_podset[gang + 1]]):
            return []
    else:
        if not trial.pending[gangs.first_podset[gang]]:
            return []
        pods = orders.pods(trial, gang)
        if len(pods) == 1:
            return pods
    known = orders.next_pods(trial)
    found = known.get(gang)
    if found is None:
        found = known[gang] = _next(trial, orders, gang, _waiting(trial, orders, gang))
    return found


def pods_to_return(trial: Trial, orders: GangOrders, gang: int) -> list[int]:
    """Return the pods to place next of a gang with tentatively evicted pods; where too few pods exist for its minimum,
    only those evicted."""
    waiting = _waiting(trial, orders, gang)
    tree = trial.snapshot.gangs.tree(gang)
    if not _able(trial, tree, _by_podset(trial, waiting)):
        waiting = [pod for pod in waiting if pod in trial.virtual]
    return _next(trial, orders, gang, waiting)


def _waiting(trial: Trial, orders: GangOrders, gang: int) -> list[int]:
    """Return its pending and its tentatively evicted pods in the order of placement."""
    status, virtual = trial.status, trial.virtual
    return [pod for pod in orders.pods(trial, gang) if status[pod] == _PENDING or pod in virtual]


def _next(trial: Trial, orders: GangOrders, gang: int, waiting: list[int]) -> list[int]:
    if not waiting:
        return []
    gangs = trial.snapshot.gangs
    tree = gangs.trees.get(gang)
    if tree is not None:
        return _collect(trial, orders, tree, _by_podset(trial, waiting))
    podset = gangs.first_podset[gang]
    missing = gangs.podset_min[podset] - trial.active_allocated[podset]
    return waiting[: missing if missing > 0 else 1]


def _by_podset(trial: Trial, pods: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pod in pods:
        found.setdefault(trial.podset[pod], []).append(pod)
    return found


def _collect(trial: Trial, orders: GangOrders, group: SubGroupSet, waiting: dict[int, list[int]]) -> list[int]:
    """Return the pods that a set lacks, of members that can reach their threshold; if too few can, of all members."""
    members = orders.members(trial, group)
    able = [member for member in members if _able(trial, member, waiting)]
    if served(trial, group) >= group.threshold:
        return next((pods for m in able if (pods := _wanted(trial, orders, m, waiting))), [])
    first = able[: group.threshold] if len(able) >= group.threshold else members[: group.threshold]
    return [pod for m in first if not satisfied(trial, m) for pod in _wanted(trial, orders, m, waiting)]


def _able(trial: Trial, member: Member, waiting: dict[int, list[int]]) -> bool:
    """Whether a member reaches its threshold if all its waiting pods are placed."""
    if isinstance(member, PodSet):
        return trial.active_allocated[member.row] + len(waiting.get(member.row, ())) >= member.min_available
    return sum(_able(trial, child, waiting) for child in member.children) >= member.threshold


def _wanted(trial: Trial, orders: GangOrders, member: Member, waiting: dict[int, list[int]]) -> list[int]:
    if isinstance(member, SubGroupSet):
        return _collect(trial, orders, member, waiting)
    missing = member.min_available - trial.active_allocated[member.row]
    return waiting.get(member.row, [])[: missing if missing > 0 else 1]


def must_wait(trial: Trial, gang: int) -> bool:
    """Whether the gang needs pipelined pods to reach its minimum; then all its new pods wait."""
    pipelined, gangs = trial.pipelined, trial.snapshot.gangs
    first = gangs.first_podset[gang]
    if gang not in gangs.trees and not pipelined[first]:
        return False
    for row in range(first, gangs.first_podset[gang + 1]):
        if pipelined[row] and trial.active_allocated[row] - pipelined[row] < gangs.podset_min[row]:
            return True
    return False


def has_allocated(trial: Trial, gang: int) -> bool:
    """Whether any pod of the gang is placed and not pipelined."""
    active, pipelined, gangs = trial.active_allocated, trial.pipelined, trial.snapshot.gangs
    first = gangs.first_podset
    if gang not in gangs.trees:
        return bool(active[first[gang]] > pipelined[first[gang]])
    return any(active[row] > pipelined[row] for row in range(first[gang], first[gang + 1]))


def is_gang(trial: Trial, gang: int) -> bool:
    """Whether some podset has a minimum of more than one pod."""
    gangs = trial.snapshot.gangs
    return max(gangs.podset_min[gangs.first_podset[gang] : gangs.first_podset[gang + 1]], default=0) > 1


def next_victims(trial: Trial, orders: GangOrders, gang: int, present: Sequence[int]) -> tuple[list[int], bool]:
    """Return which of its pods `present` the gang loses first, and whether others remain after that.

    Surplus pods go one by one, then surplus sub-groups; a gang without surplus goes whole. The core of a
    semi-preemptible gang is not among `present` and stays.
    """
    by_podset: dict[int, list[int]] = {}
    evictable, core = set(present), trial.core if gang in trial.snapshot.gangs.semi_preemptible else {}
    for pod in orders.pods(trial, gang):
        if pod in evictable or core.get(pod):
            by_podset.setdefault(trial.podset[pod], []).append(pod)
    held, tree = _Holding(trial, orders, by_podset), trial.snapshot.gangs.tree(gang)
    chosen = (_elastic(held, tree, core) if core else _surplus(held, tree)) or list(present)
    return chosen, len(chosen) < len(present)


def intact(trial: Trial, orders: GangOrders, gang: int, left: Sequence[int]) -> bool:
    """Whether a gang with only the pods `left` has its minimum in each sub-group that has pods, or has no pods."""
    by_podset = _by_podset(trial, left)
    tree = trial.snapshot.gangs.tree(gang)
    parts = all(len(by_podset.get(p.row, ())) >= p.min_available for p in tree.podsets() if p.row in by_podset)
    return not left or (parts and _Holding(trial, orders, by_podset).count(tree) >= threshold(tree))


@dataclass(frozen=True)
class _Holding:
    """The pods a gang would still hold, by podset."""

    trial: Trial
    orders: GangOrders
    pods: dict[int, list[int]]

    def count(self, member: Member) -> int:
        if isinstance(member, PodSet):
            return len(self.pods.get(member.row, ()))
        return sum(self.count(child) >= threshold(child) for child in member.children)

    def all_pods(self, member: Member) -> list[int]:
        rows = [member.row] if isinstance(member, PodSet) else [p.row for p in member.podsets()]
        return [pod for row in rows for pod in reversed(self.pods.get(row, []))]

    def last_first(self, group: SubGroupSet) -> Iterator[Member]:
        """Yield the children that have pods in reverse order of placement."""
        keyed = sorted(
            group.children, key=lambda m: (self.orders.member_key(self.count(m), threshold(m)), m.name), reverse=True
        )
        return (member for member in keyed if self.all_pods(member))


def _surplus(held: _Holding, group: SubGroupSet) -> list[int]:
    """Return what the group loses first and stays satisfied; empty where it has no surplus."""
    spare = held.count(group) > group.threshold
    for member in held.last_first(group):
        if isinstance(member, PodSet):
            pods = held.pods[member.row]
            if len(pods) > member.min_available:
                return pods[-1:]
        elif chosen := _surplus(held, member):
            return chosen
        if spare:
            return held.all_pods(member)
    return []


def _elastic(held: _Holding, group: SubGroupSet, core: Mapping[int, bool]) -> list[int]:
    """Return what a set with core pods loses first: surplus pods, then the other pods outside the core."""
    for member in held.last_first(group):
        pods = held.all_pods(member)
        if all(not core.get(pod) for pod in pods):
            if isinstance(member, PodSet):
                return pods[:1] if len(pods) > member.min_available else pods
            return _surplus(held, member) or pods
        if isinstance(member, SubGroupSet):
            if chosen := _elastic(held, member, core):
                return chosen
        elif loose := [pod for pod in pods if not core.get(pod)]:
            return loose[:1]
    return []


def core_pods(trial: Trial, orders: GangOrders, gang: int) -> list[int]:
    """Return the pods of a semi-preemptible gang that may not be evicted: of each set the minimum of members, satisfied
    ones first; of each of their podsets the minimum of pods, in the order of placement."""
    chosen = _core(trial, trial.snapshot.gangs.tree(gang))
    taken = dict.fromkeys(chosen, 0)
    found = []
    for pod in active_in_order(trial, orders, gang):
        podset = trial.podset[pod]
        if taken.get(podset, 0) < chosen.get(podset, 0):
            taken[podset] += 1
            found.append(pod)
    return found


def _core(trial: Trial, group: SubGroupSet) -> dict[int, int]:
    """Return the podsets of the core -> their minimums."""
    members = sorted(group.children, key=lambda member: (not satisfied(trial, member), member.name))
    found: dict[int, int] = {}
    for member in members[: group.threshold]:
        found |= {member.row: member.min_available} if isinstance(member, PodSet) else _core(trial, member)
    return found


def evictable_in_order(trial: Trial, orders: GangOrders, gang: int) -> list[int]:
    """Return the active pods of the gang without a core, in the order of placement."""
    pods, core = active_in_order(trial, orders, gang), trial.core
    return [pod for pod in pods if not core.get(pod)] if core else pods


def active_in_order(trial: Trial, orders: GangOrders, gang: int) -> list[int]:
    """Return the active pods of the gang in the order of placement."""
    status = trial.status
    return [pod for pod in orders.pods(trial, gang) if IS_ACTIVE_ALLOCATED[status[pod]]]


def active_pods(trial: Trial, gang: int) -> list[int]:
    """Return the pods of the gang that run, or were placed in this cycle."""
    status = trial.status
    return [pod for pod in trial.snapshot.gangs.pods(gang) if IS_ACTIVE_ALLOCATED[status[pod]]]
