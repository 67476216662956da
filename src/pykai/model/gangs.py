"""Gangs: PodGroups as the scheduler sees them. Most have one podset; some are trees of sub-groups.

A podset is a leaf (pods with a minimum), a SubGroupSet an inner node (children with a minimum of satisfied ones).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from math import inf
from typing import Any

import numpy as np
from msgspec import Struct

from pykai.model.pods import Key, Lookup, RowsByName
from pykai.model.resources import Column, Mask, Rows, freeze, frozen


class TopologyRequirement(Struct, frozen=True):
    """Where the members of a sub-group must or should be together; levels are node label keys."""

    topology: str
    required: str = ""
    preferred: str = ""


class PodSet(Struct, frozen=True):
    """A leaf of the tree; `row` is its row in the podset columns."""

    row: int
    name: str
    min_available: int
    topology: TopologyRequirement | None = None


class SubGroupSet(Struct, frozen=True):
    """An inner node; `min_satisfied` None means all children."""

    name: str
    min_satisfied: int | None
    children: tuple[PodSet | SubGroupSet, ...]
    topology: TopologyRequirement | None = None

    @property
    def threshold(self) -> int:
        return len(self.children) if self.min_satisfied is None else self.min_satisfied

    @property
    def needs_all(self) -> bool:
        """Whether it needs all of its sub-groups, at every level."""
        below = (child.needs_all for child in self.children if isinstance(child, SubGroupSet))
        return self.threshold >= len(self.children) and all(below)

    def podsets(self) -> Iterator[PodSet]:
        for child in self.children:
            if isinstance(child, PodSet):
                yield child
            else:
                yield from child.podsets()


@dataclass(frozen=True, eq=False)
class GangTable:
    """One row per PodGroup; pods and podsets of a gang by offsets."""

    queue: Sequence[int]
    """-1: the queue does not exist."""
    priority: Sequence[int]
    preemptible: Sequence[bool]
    """Whether all of its pods may be evicted; of a semi-preemptible gang only those above its minimum may."""
    trees: Mapping[int, SubGroupSet]
    """Only gangs whose tree is more than one podset named `default` without constraints."""
    first_podset: Sequence[int]
    """By gang the row of its first podset; podsets of a gang are adjacent. One entry more than gangs."""
    podset_gang: Rows
    podset_min: Sequence[int]
    pod_order: Sequence[int]
    """Pod rows grouped by gang."""
    first_pod: Sequence[int]
    """Offsets into pod_order, one more than gangs."""
    stray_pods: Mapping[int, Sequence[int]]
    """Gang -> pods that name a sub-group which does not exist."""
    stale_since: Mapping[int, float]
    staleness_grace: Mapping[int, float]
    preemption_delay: Mapping[int, float]
    last_eviction: Mapping[int, float]
    objects: Sequence[Any]
    """The objects.kinds.PodGroup behind each row."""
    semi_preemptible: frozenset[int] = frozenset()
    never_preempts: frozenset[int] = frozenset()
    """Gangs with a priority class of `preemptionPolicy: Never`."""
    immovable: frozenset[int] = frozenset()
    """Gangs that consolidation must not move."""
    with_conditions: Sequence[int] = ()
    """Gangs with a scheduling condition in their status."""
    lookup: Lookup | None = field(default=None, repr=False)
    """Rows by name, if the cache keeps them; None: collected on first use."""
    _created: dict[int, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self)

    def rows_of(self, keys: Iterable[Key]) -> dict[Key, int]:
        """Rows by namespace and name; missing keys are left out."""
        return (self.lookup or self._by_name).rows_of(keys)

    @cached_property
    def _by_name(self) -> Lookup:
        return RowsByName(self.objects)

    def last_start(self, row: int) -> float | None:
        """When the gang last got its resources; None where that never happened."""
        return last_start(self.objects[row])

    @cached_property
    def names(self) -> list[str]:
        return [group.metadata.name for group in self.objects]

    @cached_property
    def namespaces(self) -> list[str]:
        return [group.metadata.namespace for group in self.objects]

    def queue_name(self, row: int) -> str:
        """Return the queue that the PodGroup names, whether it exists or not."""
        name: str = self.objects[row].spec.queue
        return name

    def created(self, row: int) -> float:
        """Return the creation time in seconds since the epoch; 0 if it has none."""
        found = self._created.get(row)
        if found is None:
            at = self.objects[row].metadata.creation_timestamp
            found = self._created[row] = at.timestamp() if at else 0.0
        return found

    @cached_property
    def columns(self) -> GangColumns:
        return GangColumns(self)

    def title(self, row: int) -> str:
        meta = self.objects[row].metadata
        return f"{meta.namespace}/{meta.name}"

    def pods(self, row: int) -> list[int]:
        return list(self.pod_order[self.first_pod[row] : self.first_pod[row + 1]])

    def podsets(self, row: int) -> range:
        """The rows of the gang's podsets."""
        return range(self.first_podset[row], self.first_podset[row + 1])

    def tree(self, row: int) -> SubGroupSet:
        """The gang's tree, made up for the common case of a single podset."""
        tree = self.trees.get(row)
        if tree is None:
            podset = self.first_podset[row]
            tree = SubGroupSet("", None, (PodSet(podset, "default", self.podset_min[podset]),))
        return tree

    def __len__(self) -> int:
        return len(self.objects)


def last_start(group: Any) -> float | None:
    """When a PodGroup last got its resources; None where that never happened."""
    text = (group.metadata.annotations or {}).get("kai.scheduler/last-start-timestamp")
    return _instant(text) if text else None


@lru_cache(maxsize=1 << 17)
def _instant(text: str) -> float | None:
    """Return seconds since the epoch; None: unreadable. Cached, as every cycle reads the same texts."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


class GangColumns:
    """The lists of a GangTable as arrays; each is made on first use."""

    def __init__(self, table: GangTable) -> None:
        self._queue, self._priority, self._preemptible = table.queue, table.priority, table.preemptible
        self._objects, self._podset_min = table.objects, table.podset_min

    @cached_property
    def queue(self) -> Rows:
        return frozen(np.asarray(self._queue, dtype=np.int64))

    @cached_property
    def priority(self) -> Column:
        return frozen(np.asarray(self._priority, dtype=np.float64))

    @cached_property
    def preemptible(self) -> Mask:
        return frozen(np.asarray(self._preemptible, dtype=bool))

    @cached_property
    def creation(self) -> Column:
        created = [group.metadata.creation_timestamp for group in self._objects]
        return frozen(np.array([at.timestamp() if at else 0.0 for at in created], dtype=np.float64))

    @cached_property
    def last_start(self) -> Column:
        """When each last got its resources; minus infinity where that never happened."""
        starts = map(last_start, self._objects)
        return frozen(np.fromiter((-inf if at is None else at for at in starts), np.float64, len(self._objects)))

    @cached_property
    def podset_min(self) -> Rows:
        """By podset."""
        return frozen(np.asarray(self._podset_min, dtype=np.int64))
