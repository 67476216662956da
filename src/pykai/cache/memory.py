"""What was read from objects and is kept from one snapshot to the next, and for how long."""

from __future__ import annotations

from pykai.cache.classes import KindMemo
from pykai.cache.groups import GroupMemo
from pykai.cache.nodes import NodeMemo
from pykai.cache.numbering import Numbers, Readings
from pykai.cache.pod_reader import PodReader
from pykai.model.params import SchedulerParams

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
        self.pods = Readings()
        self.pod_reader = PodReader(self.kinds, self.groups.numbers, self.node_numbers, self.params)

    def forget_the_past(self, objects: int) -> None:
        """Begin anew when most of what has a number can no longer be there; `objects`: how many there are."""
        known = len(self.nodes) + len(self.groups) + len(self.kinds) + len(self.node_numbers)
        if known > 2 * objects + MOST_GONE:
            self._begin()
