"""PodGroup objects and their pods -> GangTable.

Each PodGroup is read once: its name and spec as numbers, and whether it has timestamps of KAI. Ten thousand PodGroups
have a few hundred different specs, so everything derived from a spec is computed once per spec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from pykai.cache.readings import Kept, NamedRows, NumberedNames, Numbers, column, in_order
from pykai.cache.store import Store
from pykai.model.gangs import GangTable, PodSet, SubGroupSet, TopologyRequirement
from pykai.model.params import SchedulerParams
from pykai.model.pods import Lookup, PodTable
from pykai.model.resources import Rows, fixed
from pykai.model.snapshot import QueueTable
from pykai.objects import names
from pykai.objects.kinds import PodGroup, PodGroupSpec, PriorityClass, SubGroup, TopologyConstraint
from pykai.objects.names import LAST_EVICTION_TIMESTAMP, STALE_TIMESTAMP
from pykai.objects.units import parse_duration, parse_timestamp

_NUMBER, _SPEC, _NOTED, _FOREIGN, _WITH_CONDITIONS = range(5)


@dataclass(frozen=True)
class Groups:
    """PodGroups as they were read; a column each for their numbers, spec numbers, whether they have timestamps, belong
    to another node pool, or show why they wait."""

    objects: Sequence[PodGroup]
    specs: Sequence[PodGroupSpec]
    block: Rows
    lookup: Lookup | None = None
    """Where they are by name, if that is kept."""

    def of_spec(self, read: Callable[[PodGroupSpec], int]) -> Rows:
        """Return `read(spec)` for each group, computed once per distinct spec."""
        made = np.array([read(spec) for spec in self.specs], dtype=np.int64)
        return np.asarray(made[self.block[_SPEC]])

    def stating(self, read: Callable[[PodGroupSpec], bool]) -> list[int]:
        """Return the rows of groups for whose spec the function is true."""
        specs = [number for number, spec in enumerate(self.specs) if read(spec)]
        return np.flatnonzero(np.isin(self.block[_SPEC], specs)).tolist() if specs else []

    def with_conditions(self) -> list[int]:
        """Return the rows of groups with a scheduling condition."""
        rows: list[int] = np.flatnonzero(self.block[_WITH_CONDITIONS]).tolist()
        return rows

    def noted(self) -> list[int]:
        """Rows of groups with a timestamp that matters here."""
        rows: list[int] = np.flatnonzero(self.block[_NOTED]).tolist()
        return rows

    def rows_of(self, numbers: Rows) -> Rows:
        """Rows of PodGroups by number; -1 where there is none."""
        own = self.block[_NUMBER]
        rows = np.full(max(numbers.max(initial=-1), own.max(initial=-1)) + 2, -1, dtype=np.int64)
        rows[own] = np.arange(len(own))
        return np.asarray(rows[numbers])

    def without(self, rows: Sequence[int]) -> Groups:
        if not rows:
            return self
        kept = np.delete(np.arange(len(self.objects)), rows)
        objects = [self.objects[row] for row in kept.tolist()]
        return replace(self, objects=objects, block=self.block[:, kept], lookup=None)


class GroupMemo:
    """PodGroups and their specs by number."""

    def __init__(self, params: SchedulerParams) -> None:
        self.params = params
        self.numbers = NumberedNames()
        self._specs: list[PodGroupSpec] = []
        self._spec_numbers: Numbers[object] = Numbers()
        self._last_of_queue: dict[str, tuple[PodGroupSpec, int]] = {}
        """By queue the last spec that was looked up, and its number: mostly the next one is equal, and to compare two
        specs takes less than to look one up."""
        self.kept = Kept()

    def __len__(self) -> int:
        return len(self.numbers) + len(self._specs)

    def read(self, store: Store) -> Groups:
        """Return the PodGroups of this node pool; only new ones are read."""
        groups, block = self.kept.follow(store, self._read)
        found = Groups(groups, self._specs, block, self.kept.lookup())
        return found.without(np.flatnonzero(block[_FOREIGN]).tolist())

    def _read(self, groups: Sequence[PodGroup]) -> Rows:
        known, named, namespace = self._last_of_queue, NamedRows(), None
        specs: list[int] = []
        noted: list[int] = []
        foreign: list[int] = []
        conditioned: list[int] = []
        pool_key, pool = self.params.pool_label
        for row, group in enumerate(groups):
            meta, spec = group.metadata, group.spec
            if meta.namespace != namespace:
                namespace = meta.namespace
                rows, group_names = named.of(namespace)
            rows.append(row)
            group_names.append(meta.name)
            last = known.get(spec.queue)
            specs.append(last[1] if last is not None and last[0] == spec else self._learn(spec))
            if (notes := meta.annotations) and (STALE_TIMESTAMP in notes or LAST_EVICTION_TIMESTAMP in notes):
                noted.append(row)
            if (labels.get(pool_key) if (labels := meta.labels) else None) != pool:
                foreign.append(row)
            if group.status.scheduling_conditions:
                conditioned.append(row)
        block = np.zeros((5, len(groups)), dtype=np.int64)
        block[_NUMBER], block[_SPEC] = self.numbers.column(len(groups), named), column(specs)
        block[_NOTED, noted] = block[_FOREIGN, foreign] = block[_WITH_CONDITIONS, conditioned] = 1
        return block

    def _learn(self, spec: PodGroupSpec) -> int:
        """The number of a spec. Lists cannot be looked up, but their text can."""
        number = self._spec_numbers[spec if spec.sub_groups is None else repr(spec)]
        if number == len(self._specs):
            self._specs.append(spec)
        self._last_of_queue[spec.queue] = spec, number
        return number


DEFAULT_PRIORITY = 50
NON_PREEMPTIBLE_FROM = 100
SEMI_PREEMPTIBLE = "semi-preemptible"
Alias = Callable[[str, str], str]
"""(topology, level or alias) -> node label key."""


class SubGroupError(ValueError):
    """The sub-groups of a PodGroup do not form a tree."""


def effective_preemptibility(stated: str, priority: int) -> bool:
    """Whether a workload may be evicted as a whole: as stated, else below priority 100."""
    return stated == "preemptible" if stated else priority < NON_PREEMPTIBLE_FROM


@dataclass(frozen=True)
class Priorities:
    """Priority by class name, the value for groups without a known class, and the classes that never preempt."""

    values: Mapping[str, int]
    default: int
    never: frozenset[str]
    """Classes with `preemptionPolicy: Never`."""
    default_never: bool

    def of(self, spec: PodGroupSpec) -> int:
        return self.values.get(spec.priority_class_name, self.default)

    def never_preempts(self, spec: PodGroupSpec) -> bool:
        known = spec.priority_class_name in self.values
        return spec.priority_class_name in self.never if known else self.default_never


def priorities(classes: Sequence[PriorityClass]) -> Priorities:
    """Return the priorities that the priority classes of the cluster define."""
    default = next((c for c in classes if c.global_default), None)
    never = frozenset(c.metadata.name for c in classes if c.preemption_policy == "Never")
    return Priorities(
        {c.metadata.name: c.value for c in classes},
        DEFAULT_PRIORITY if default is None else default.value,
        never,
        default is not None and default.metadata.name in never,
    )


def requirement(constraint: TopologyConstraint | None, alias: Alias) -> TopologyRequirement | None:
    if constraint is None or not constraint.topology:
        return None
    topology = constraint.topology
    return TopologyRequirement(
        topology,
        alias(topology, constraint.required_topology_level),
        alias(topology, constraint.preferred_topology_level),
    )


@dataclass
class _TreeBuilder:
    """Builds one gang's tree; podset rows are numbered as they are met."""

    first_row: int
    alias: Alias
    minimums: list[int] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)

    def podset(self, name: str, minimum: int, topology: TopologyRequirement | None) -> PodSet:
        row = self.first_row + len(self.minimums)
        self.minimums.append(minimum)
        self.rows[name] = row
        return PodSet(row, name, minimum, topology)

    def tree(self, group: PodGroup) -> SubGroupSet:
        spec = group.spec
        root = requirement(spec.topology_constraint, self.alias)
        if not spec.sub_groups:
            minimum = 1 if spec.min_member is None else max(spec.min_member, 0)
            return SubGroupSet("", None, (self.podset(names.DEFAULT_PODSET, minimum, None),), root)
        children = _children_by_parent(spec.sub_groups)
        return SubGroupSet("", spec.min_sub_group, self._members("", children), root)

    def _members(self, parent: str, children: Mapping[str, list[SubGroup]]) -> tuple[PodSet | SubGroupSet, ...]:
        return tuple(self._member(group, children) for group in sorted(children.get(parent, ()), key=lambda g: g.name))

    def _member(self, group: SubGroup, children: Mapping[str, list[SubGroup]]) -> PodSet | SubGroupSet:
        topology = requirement(group.topology_constraint, self.alias)
        if group.name in children:
            return SubGroupSet(group.name, group.min_sub_group, self._members(group.name, children), topology)
        return self.podset(group.name, max(group.min_member or 0, 0), topology)


def _children_by_parent(groups: Sequence[SubGroup]) -> dict[str, list[SubGroup]]:
    """Return sub-groups by the name of their parent ("" is the PodGroup). Raise SubGroupError for a missing or
    duplicate name, an unknown parent or a cycle."""
    known: dict[str, SubGroup] = {}
    for group in groups:
        if not group.name:
            raise SubGroupError("a subgroup has no name")
        if group.name in known:
            raise SubGroupError(f"subgroup <{group.name}> already exists")
        known[group.name] = group
    children: dict[str, list[SubGroup]] = {}
    for group in groups:
        parent = (group.parent or "").lower()
        if parent and parent not in known:
            raise SubGroupError(f"parent subgroup <{parent}> of <{group.name}> not found")
        children.setdefault(parent, []).append(group)
    for group in groups:
        seen, above = {group.name}, (group.parent or "").lower()
        while above:
            if above in seen:
                raise SubGroupError(f"subgroup <{group.name}> is part of a cycle")
            seen.add(above)
            above = (known[above].parent or "").lower()
    return children


@dataclass(frozen=True)
class GangRows:
    """The gangs before their pods are known."""

    groups: Groups
    trees: dict[int, SubGroupSet]
    first_podset: Rows
    podset_gang: Rows
    podset_min: Rows
    podset_rows: dict[int, dict[str, int]]
    """By gang and name; only for gangs with sub-groups, the others have the one podset `default`."""


def gang_rows(groups: Groups, alias: Alias) -> GangRows:
    """Numbers podsets. A PodGroup whose sub-groups form no tree keeps a podset that no pod can join."""
    trees: dict[int, SubGroupSet] = {}
    podset_rows: dict[int, dict[str, int]] = {}
    minimum = groups.of_spec(lambda spec: 1 if spec.min_member is None else spec.min_member)
    sizes = np.ones(len(minimum), dtype=np.int64)
    minimums: dict[int, list[int]] = {}
    moved = 0
    """Podsets that gangs so far have beyond one each."""
    for row in groups.stating(_has_tree):
        builder, trees[row] = _build(groups.objects[row], row + moved, alias)
        podset_rows[row], minimums[row] = builder.rows, builder.minimums
        sizes[row] = len(builder.minimums)
        moved += len(builder.minimums) - 1
    first = np.concatenate([[0], np.cumsum(sizes)])
    mins = np.repeat(minimum, sizes)
    for row, own in minimums.items():
        mins[first[row] : first[row + 1]] = own
    return GangRows(groups, trees, first, np.repeat(np.arange(len(minimum)), sizes), mins, podset_rows)


def _has_tree(spec: PodGroupSpec) -> bool:
    """Whether the tree is more than one podset. The pod grouper writes an empty topology constraint to every group."""
    constraint = spec.topology_constraint
    return bool(spec.sub_groups) or (constraint is not None and bool(constraint.topology))


def _build(group: PodGroup, first_row: int, alias: Alias) -> tuple[_TreeBuilder, SubGroupSet]:
    builder = _TreeBuilder(first_row, alias)
    try:
        return builder, builder.tree(group)
    except SubGroupError:
        broken = _TreeBuilder(first_row, alias)
        return broken, SubGroupSet("", None, (broken.podset("", 1, None),))


def sub_group_tree(group: PodGroup) -> SubGroupSet:
    """The tree of one PodGroup by itself; raises SubGroupError where there is none."""
    return _TreeBuilder(0, lambda _, level: level).tree(group)


def gang_table(
    rows: GangRows,
    pods: PodTable,
    stray_pods: dict[int, list[int]],
    queues: QueueTable,
    classes: Priorities,
) -> GangTable:
    """The table of the gangs with their pods."""
    groups, often, pod_gang = rows.groups, pods.many_wait, pods.gang
    counts = np.bincount(pod_gang + 1, minlength=len(groups.objects) + 1)
    preemptible = groups.of_spec(lambda spec: effective_preemptibility(spec.preemptibility, classes.of(spec)))
    return GangTable(
        queue=fixed(groups.of_spec(lambda spec: queues.rows.get(spec.queue, -1)), often),
        priority=fixed(groups.of_spec(classes.of), often),
        preemptible=fixed(preemptible.astype(bool), often),
        trees=rows.trees,
        first_podset=fixed(rows.first_podset, often),
        podset_gang=rows.podset_gang,
        podset_min=fixed(rows.podset_min, often),
        pod_order=fixed(in_order(pod_gang)[counts[0] :], often),
        first_pod=fixed(np.cumsum(counts) - counts[0], often),
        stray_pods={gang: tuple(rows) for gang, rows in stray_pods.items()},
        stale_since=_instants(groups, names.STALE_TIMESTAMP),
        last_eviction=_instants(groups, names.LAST_EVICTION_TIMESTAMP),
        staleness_grace=_durations(groups, lambda spec: spec.staleness_grace_period),
        preemption_delay=_durations(groups, lambda spec: spec.preemption_delay),
        objects=groups.objects,
        semi_preemptible=frozenset(groups.stating(lambda spec: spec.preemptibility == SEMI_PREEMPTIBLE)),
        never_preempts=frozenset(groups.stating(classes.never_preempts) if classes.never else ()),
        immovable=frozenset(groups.stating(lambda spec: spec.safe_to_consolidate is False)),
        with_conditions=groups.with_conditions(),
        lookup=groups.lookup,
    )


def _instants(groups: Groups, key: str) -> dict[int, float]:
    """Return the timestamps in an annotation; unreadable ones are left out, so that no gang is stale since 1970."""
    notes = {row: groups.objects[row].metadata.annotations or {} for row in groups.noted()}
    return {row: at for row, a in notes.items() if (at := parse_timestamp(a.get(key))) is not None}


def _durations(groups: Groups, text_of: Callable[[PodGroupSpec], str | None]) -> dict[int, float]:
    found: dict[int, float] = {}
    for row in groups.stating(lambda spec: text_of(spec) is not None):
        with suppress(ValueError):
            found[row] = parse_duration(text_of(groups.objects[row].spec) or "")
    return found
