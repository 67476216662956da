"""The domains of a topology as one ask sees them: which have room, and in which order they are tried.

Kept up to date like the figures it rests on: what one gang leaves behind is where the next one begins. Not a plugin: a
part of the topology plugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pykai.kernels.domains import TreeOrder, common_depth, tightness, tightness_of
from pykai.model.resources import Column, Mask
from pykai.plugins.domain_ask import Ask
from pykai.plugins.domain_room import Ground
from pykai.plugins.topology_levels import Depths


class Domains:
    """The domains of a tree down to the deepest level that is wanted."""

    def __init__(self, ground: Ground, ask: Ask, wanted: Depths) -> None:
        self.site, self._whole = ground.site, ground.whole
        self.ask = ask
        self.wanted = wanted
        self.common = common_depth(ground.site.tree, wanted.preferred or wanted.required)
        """How far down one domain holds all nodes."""
        self._room = ground.room(ask, wanted.deepest)
        self._read = len(self._room.changed)
        self._wants: list[float] = ask.wants.tolist()
        tight = [tightness(ask.wants, self.free(depth)).tolist() for depth in range(wanted.deepest + 1)]
        self.order = TreeOrder(ground.site.tree, tight)

    @classmethod
    def of(cls, ground: Ground, ask: Ask, wanted: Depths) -> Domains:
        """The up-to-date domains of a ground for an ask."""
        known = ground.views.get((ask, wanted))
        if known is None:
            known = ground.views[ask, wanted] = cls(ground, ask, wanted)
        known.refresh()
        return known

    def refresh(self) -> None:
        """Follow the figures of what was touched since the last time."""
        self._room.refresh()
        changed = self._room.changed
        if self._read == len(changed):
            return
        domains = set(changed[self._read :])
        self._read = len(changed)
        for depth in range(self.wanted.deepest, -1, -1):
            _, *free = self._room.sums[depth]
            for domain in domains:
                self.order.put(depth, domain, tightness_of(self._wants, [column[domain] for column in free]))
            above = self.site.tree.above[depth]
            domains = {above[domain] for domain in domains}

    def room(self, depth: int) -> Column:
        """[domain]: how many of the pods each could take."""
        return np.array(self._room.sums[depth][0])

    def free(self, depth: int) -> Column:
        """[resource, domain], of the resources that are asked for."""
        return np.array(self._room.sums[depth][1:]).reshape(len(self._wants), self.site.tree.count(depth))

    def holds(self, depth: int, domain: int) -> bool:
        """Whether a domain has room for everybody."""
        if self.ask.uniform:
            return self._room.sums[depth][0][domain] >= self.ask.count
        return self.order.tight[depth][domain] <= 1

    def fitting(self, depth: int, at: int = 0, domain: int = 0) -> Iterator[int]:
        """The domains of a depth with room for everybody, from left to right; of those in a domain at another depth,
        which has room itself."""
        if at == depth:
            yield domain
            return
        sure = self.ask.uniform or at + 1 == depth  # room counted in pods is never more in a part than in the whole
        for child in self.order.family(at + 1, domain):
            if not sure or self.holds(at + 1, child):
                yield from self.fitting(depth, at + 1, child)

    def near(self, nodes: Sequence[int], depth: int) -> Mask:
        """Which domains of a depth lie in a domain of the required level that holds one of the node rows, whether that
        node itself is on the ground or not."""
        whole, required, tree = self._whole, self.wanted.required, self.site.tree
        holds = np.zeros(whole.tree.count(required), dtype=bool)
        holds[whole.tree.domain_of(required, np.array(whole.places(nodes), dtype=np.int64))] = True
        return np.asarray(holds[whole.tree.domain_of(required, whole.positions[tree.order[tree.starts[depth]]])])
