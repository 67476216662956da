"""One look at each PodGroup: its name, its spec and whether it has timestamps of ours, as numbers.

Ten thousand PodGroups have a few hundred different specs, so what follows from a spec is found out once per spec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykai.cache.numbering import NamedRows, NumberedNames, Numbers, Readings, column
from pykai.model.params import SchedulerParams
from pykai.model.resources import Rows
from pykai.objects.kinds import PodGroup, PodGroupSpec
from pykai.objects.names import LAST_EVICTION_TIMESTAMP, STALE_TIMESTAMP

_NO_LABELS: dict[str, str] = {}
_NUMBER, _SPEC, _NOTED, _FOREIGN = range(4)


@dataclass(frozen=True)
class Groups:
    """PodGroups as they were read; a column each for their numbers, spec numbers, whether they have timestamps, and
    whether they belong to another node pool."""

    objects: Sequence[PodGroup]
    specs: Sequence[PodGroupSpec]
    block: Rows

    def of_spec(self, read: Callable[[PodGroupSpec], Any]) -> list[Any]:
        """What a function makes of the spec of each group."""
        made = [read(spec) for spec in self.specs]
        return [made[number] for number in self.block[_SPEC].tolist()]

    def stating(self, read: Callable[[PodGroupSpec], bool]) -> list[int]:
        """Rows of groups whose spec has what the function looks for."""
        specs = [number for number, spec in enumerate(self.specs) if read(spec)]
        return np.flatnonzero(np.isin(self.block[_SPEC], specs)).tolist() if specs else []

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
        return replace(self, objects=[self.objects[row] for row in kept.tolist()], block=self.block[:, kept])


class GroupMemo:
    """PodGroups and their specs by number."""

    def __init__(self, params: SchedulerParams) -> None:
        self.params = params
        self.numbers = NumberedNames()
        self._specs: list[PodGroupSpec] = []
        self._spec_numbers: Numbers[object] = Numbers()
        self._readings = Readings()

    def __len__(self) -> int:
        return len(self.numbers) + len(self._specs)

    def read(self, groups: Sequence[PodGroup]) -> Groups:
        """What is known of those of our node pool, after a look at those that are new."""
        block = self._readings.block(groups, self._read)
        return Groups(groups, self._specs, block).without(np.flatnonzero(block[_FOREIGN]).tolist())

    def _read(self, groups: Sequence[PodGroup]) -> Rows:
        known, named, namespace = self._spec_numbers, dict[str, NamedRows](), None
        specs: list[int] = []
        noted: list[int] = []
        foreign: list[int] = []
        pool_key, pool = self.params.pool_label
        for row, group in enumerate(groups):
            meta, spec = group.metadata, group.spec
            if meta.namespace != namespace:
                namespace = meta.namespace
                rows, group_names = named.setdefault(namespace, ([], []))
            rows.append(row)
            group_names.append(meta.name)
            found = known.get(spec) if spec.sub_groups is None else None
            specs.append(self._learn(spec) if found is None else found)
            if (notes := meta.annotations) and (STALE_TIMESTAMP in notes or LAST_EVICTION_TIMESTAMP in notes):
                noted.append(row)
            if (meta.labels or _NO_LABELS).get(pool_key) != pool:
                foreign.append(row)
        block = np.zeros((4, len(groups)), dtype=np.int64)
        block[_NUMBER], block[_SPEC] = self.numbers.column(len(groups), named), column(specs)
        block[_NOTED, noted] = block[_FOREIGN, foreign] = 1
        return block

    def _learn(self, spec: PodGroupSpec) -> int:
        """The number of a spec. Lists cannot be looked up, but their text can."""
        number = self._spec_numbers[spec if spec.sub_groups is None else repr(spec)]
        if number == len(self._specs):
            self._specs.append(spec)
        return number
