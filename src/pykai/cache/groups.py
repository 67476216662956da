"""One look at each PodGroup: its name, its spec and whether it has timestamps of ours, as numbers.

Ten thousand PodGroups have a few hundred different specs, so what follows from a spec is found out once per spec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pykai.cache.kept import Kept
from pykai.cache.numbering import NamedRows, NumberedNames, Numbers, column
from pykai.cache.store import Store
from pykai.model.lookup import Lookup
from pykai.model.params import SchedulerParams
from pykai.model.resources import Rows
from pykai.objects.kinds import PodGroup, PodGroupSpec
from pykai.objects.names import LAST_EVICTION_TIMESTAMP, STALE_TIMESTAMP

_NUMBER, _SPEC, _NOTED, _FOREIGN, _BLAMED = range(5)


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
        """The number that a function makes of the spec of each group."""
        made = np.array([read(spec) for spec in self.specs], dtype=np.int64)
        return np.asarray(made[self.block[_SPEC]])

    def stating(self, read: Callable[[PodGroupSpec], bool]) -> list[int]:
        """Rows of groups whose spec has what the function looks for."""
        specs = [number for number, spec in enumerate(self.specs) if read(spec)]
        return np.flatnonzero(np.isin(self.block[_SPEC], specs)).tolist() if specs else []

    def blamed(self) -> list[int]:
        """Rows of groups that show why they wait, or did."""
        rows: list[int] = np.flatnonzero(self.block[_BLAMED]).tolist()
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
        self.kept = Kept()

    def __len__(self) -> int:
        return len(self.numbers) + len(self._specs)

    def read(self, store: Store) -> Groups:
        """What is known of those of our node pool, after a look at those that are new."""
        groups, block = self.kept.follow(store, self._read)
        found = Groups(groups, self._specs, block, self.kept.lookup(len(groups)))
        return found.without(np.flatnonzero(block[_FOREIGN]).tolist())

    def _read(self, groups: Sequence[PodGroup]) -> Rows:
        known, named, namespace = self._spec_numbers, NamedRows(), None
        specs: list[int] = []
        noted: list[int] = []
        foreign: list[int] = []
        blamed: list[int] = []
        pool_key, pool = self.params.pool_label
        for row, group in enumerate(groups):
            meta, spec = group.metadata, group.spec
            if meta.namespace != namespace:
                namespace = meta.namespace
                rows, group_names = named.of(namespace)
            rows.append(row)
            group_names.append(meta.name)
            found = known.get(spec) if spec.sub_groups is None else None
            specs.append(self._learn(spec) if found is None else found)
            if (notes := meta.annotations) and (STALE_TIMESTAMP in notes or LAST_EVICTION_TIMESTAMP in notes):
                noted.append(row)
            if (labels.get(pool_key) if (labels := meta.labels) else None) != pool:
                foreign.append(row)
            if group.status.scheduling_conditions:
                blamed.append(row)
        block = np.zeros((5, len(groups)), dtype=np.int64)
        block[_NUMBER], block[_SPEC] = self.numbers.column(len(groups), named), column(specs)
        block[_NOTED, noted] = block[_FOREIGN, foreign] = block[_BLAMED, blamed] = 1
        return block

    def _learn(self, spec: PodGroupSpec) -> int:
        """The number of a spec. Lists cannot be looked up, but their text can."""
        number = self._spec_numbers[spec if spec.sub_groups is None else repr(spec)]
        if number == len(self._specs):
            self._specs.append(spec)
        return number
