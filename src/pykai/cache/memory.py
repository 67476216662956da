"""What was read from objects and is kept from one snapshot to the next, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pykai.cache.classes import KindMemo
from pykai.cache.groups import GroupMemo
from pykai.cache.kept import Derived, Kept
from pykai.cache.nodes import NodeMemo
from pykai.cache.numbering import Numbers
from pykai.cache.pod_reader import PodReader
from pykai.model.params import SchedulerParams
from pykai.model.resources import Rows

MOST_GONE = 100_000
"""Numbers of things that may be gone which are kept before everything is read anew."""


class Memory:
    """The memos of one scheduler. A copy of the cache shares them."""

    def __init__(self, params: SchedulerParams) -> None:
        self.params = params
        self._begin()

    def _begin(self) -> None:
        self.nodes = NodeMemo(self.params.mig_worker_key)
        self.groups = GroupMemo(self.params)
        self.kinds = KindMemo()
        self.node_numbers: Numbers[str] = Numbers()
        self.pods = Kept()
        self.derived = Derived()
        self._node_rows: tuple[Mapping[str, int], Rows] = {}, np.zeros(0, dtype=np.int64)
        self.pod_reader = PodReader(self.kinds, self.groups.numbers, self.node_numbers, self.params)

    def node_rows(self, rows: Mapping[str, int]) -> Rows:
        """The row of each node by the number its name has here, -1 where there is none."""
        known, column = self._node_rows
        if known is not rows or len(column) != len(self.node_numbers):
            column = np.array([rows.get(name, -1) for name in self.node_numbers], dtype=np.int64)
            self._node_rows = rows, column
        return column

    def forget_the_past(self, objects: int) -> None:
        """Begin anew when most of what has a number can no longer be there; `objects`: how many there are."""
        known = len(self.nodes) + len(self.groups) + len(self.kinds) + len(self.node_numbers)
        if known > 2 * objects + MOST_GONE:
            self._begin()
