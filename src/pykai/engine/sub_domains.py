"""Sub-groups of a gang that must each be within one domain of a level of their own, such as a rack.

That all pods of the gang fit into a block says little where they come in groups that must each fit into a rack of it:
free places are counted in whole groups, rack by rack. Each size of groups is counted as if the others wanted nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import NodeSubsets
from pykai.model.gangs import PodSet, SubGroupSet
from pykai.model.resources import Column, Mask, Rows

_SLACK = 1e-9


@dataclass(frozen=True)
class SubDomains:
    """The narrower domains of some sub-groups, one for each of them; several may share one."""

    cells: Rows
    """By node: its narrower domain, as far as it is in a domain of the gang; -1 is none."""
    around: Rows
    """By narrower domain: the domain of the gang that it is in."""
    sizes: Sequence[int]
    """How many pods each of the sub-groups has."""

    def fit(self, counts: Column, domains: int) -> Mask:
        """[domain of the gang]: whether the sub-groups could fit if so many pods fit on each node."""
        inside, fit = self.cells >= 0, np.ones(domains, dtype=bool)
        room = np.bincount(self.cells[inside], weights=counts[inside], minlength=len(self.around))
        for size in set(self.sizes):
            groups = sum(1 for other in self.sizes if other >= size)
            fit &= np.bincount(self.around, weights=np.floor(room / size + _SLACK), minlength=domains) >= groups
        return fit

    def tightest(self, counts: Column, domain: int, first: int) -> Mask:
        """By node: whether it is in one of the fewest narrower domains of the gang's that the sub-groups could
        fit into: that of a node, then those with the least room."""
        inside, sizes = self.cells >= 0, sorted(set(self.sizes))
        room = np.bincount(self.cells[inside], weights=counts[inside], minlength=len(self.around))
        able = np.flatnonzero((self.around == domain) & (room >= sizes[0]))
        able = able[np.lexsort((room[able], able != self.cells[first]))]
        enough = np.ones(len(able), dtype=bool)
        for size in sizes:
            groups = sum(1 for other in self.sizes if other >= size)
            enough &= np.cumsum(np.floor(room[able] / size + _SLACK)) >= groups
        return np.isin(self.cells, able[: int(enough.argmax()) + 1] if enough.any() else able)


def sub_domains(cycle: Cycle, pods: Sequence[int], domains: Rows) -> list[SubDomains]:
    """The narrower domains that some pods of a gang need; `domains`: by node that of the gang."""
    trial = cycle.trial
    tree = cycle.snapshot.gangs.trees.get(trial.gang[pods[0]])
    found: dict[bytes, tuple[Rows, list[int]]] = {}
    if tree is not None:
        present = Counter(trial.podset[pod] for pod in pods)
        for group in filter(lambda group: group.topology is not None, _below(tree)):
            rows = [group.row] if isinstance(group, PodSet) else [podset.row for podset in group.podsets()]
            size = sum(present[row] for row in rows)
            asked = (plugin.domains(cycle, trial.gang[pods[0]], group) for plugin in cycle.policy.of(NodeSubsets))
            narrow = next((each for each in asked if each is not None), None) if size else None
            if narrow is not None:
                found.setdefault(narrow.tobytes(), (narrow, []))[1].append(size)
    return [_cut(narrow, domains, sizes) for narrow, sizes in found.values()]


def _below(group: SubGroupSet) -> Iterator[PodSet | SubGroupSet]:
    """All sub-groups, at every level."""
    for child in group.children:
        yield child
        if isinstance(child, SubGroupSet):
            yield from _below(child)


def _cut(narrow: Rows, domains: Rows, sizes: Sequence[int]) -> SubDomains:
    """Narrower domains cut at the borders of those of the gang."""
    inside = np.flatnonzero((narrow >= 0) & (domains >= 0))
    pairs, of_node = np.unique(np.stack((domains[inside], narrow[inside])), axis=1, return_inverse=True)
    cells = np.full(len(domains), -1)
    cells[inside] = of_node.reshape(-1)
    return SubDomains(cells, pairs[0], sizes)
