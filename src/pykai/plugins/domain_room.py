"""What room the nodes of a topology have for a gang, kept up to date while a cycle places pods.

A placement touches few nodes. Figures per node follow the trial's list of touched nodes instead of being computed
anew for every gang; figures per domain are sums over slices of them. Not a plugin: the state the topology plugin
keeps in the memory of a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pykai.engine.devices import with_room
from pykai.kernels.domains import DomainTree, domain_tree, pods_per_node, within
from pykai.model.pods import PodClass
from pykai.model.resources import GPU, MEMORY, PODS, Column, Rows

if TYPE_CHECKING:
    from pykai.engine.cycle import Cycle
    from pykai.engine.trial import Trial

PARTS_KEPT = 256
"""Trees of parts of a topology that are remembered in a cycle: enough for the racks of a large cluster."""


@dataclass(frozen=True, eq=False)
class Ask:
    """What pods that go together ask for. Vectors are [resource]; a request in GPU memory has no GPU figure."""

    classes: tuple[int, ...]
    """Rows of the distinct classes, ascending."""
    count: int
    asked: Rows
    """Resources that are asked for."""
    need: Column
    """[asked]: the largest single request."""
    uniform: bool
    """Whether the pods want the same kinds of resources, so that room can be counted in pods."""
    dims: Rows
    """Resources by which domains are compared: all that are asked for but the pod slot."""
    wants: Column
    """[dims]: all requests together."""
    share: PodClass | None
    """The class that wants most of a GPU, where it takes a share of a device."""


def ask_for(trial: Trial, pods: Sequence[int]) -> Ask:
    """What the pods ask for together."""
    rows, counts = np.unique([trial.klass[pod] for pod in pods], return_counts=True)
    classes = [trial.snapshot.pods.classes[row] for row in rows.tolist()]
    requests = np.array([c.request for c in classes], dtype=np.float64).T
    kinds = np.array([_kinds(c) for c in classes])
    total: Column = requests @ counts.astype(np.float64)
    dims = np.array([row for row in np.flatnonzero(total > 0).tolist() if row != PODS], dtype=np.int64)
    largest = max(classes, key=lambda c: (c.request[GPU], c.memory_mib * c.devices))
    return Ask(
        classes=tuple(rows.tolist()),
        count=len(pods),
        asked=np.flatnonzero(total > 0),
        need=requests.max(axis=1)[total > 0],
        uniform=bool((kinds == kinds[0]).all()),
        dims=dims,
        wants=total[dims],
        share=largest if largest.shared else None,
    )


def _kinds(c: PodClass) -> list[bool]:
    """Which resources beyond cpu and memory a pod of the class uses."""
    uses = (c.request > 0).tolist()
    uses[GPU] = uses[GPU] or c.shared
    return list(uses[MEMORY + 1 :])


class Ground:
    """The free figures of the nodes of one tree; positions are places in its tree order."""

    def __init__(self, trial: Trial, tree: DomainTree) -> None:
        self.trial = trial
        self.tree = tree
        self._position = np.full(len(trial.snapshot.nodes), -1, dtype=np.int64)
        self._position[tree.order] = np.arange(len(tree.order))
        self._kept: dict[tuple[int, ...], tuple[int, Column]] = {}
        """By classes: how many touched nodes had been read, and the figures then."""
        self._nodes: dict[tuple[int, int], Rows] = {}
        self._latest: tuple[int, int, Rows] = (0, 0, _NONE)

    def figures(self, ask: Ask) -> Column:
        """[figure, position]: how many of the pods each node could take, judged by the largest of them; then for each
        of `ask.dims` what is free, counting what is being released. Read only."""
        if not len(ask.dims) and ask.share is None:
            return np.full((1, len(self.tree.order)), float(ask.count))
        known, now = self._kept.get(ask.classes), len(self.trial.touched)
        if known is None:
            figures = figures_of(self.trial, ask, self.tree.order)
        else:
            read, figures = known
            if read == now:
                return figures
            news = self._news(read)
            if len(news):
                figures[:, news] = figures_of(self.trial, ask, self.tree.order[news])
        self._kept[ask.classes] = (now, figures)
        return figures

    def positions(self, nodes: Rows) -> Rows:
        """Places of node rows in the tree, ascending; nodes outside it are left out."""
        found = self._position[nodes]
        return np.sort(found[found >= 0])

    def nodes_of(self, depth: int, domain: int) -> Rows | None:
        """The node rows of a domain, ascending, the same array each time; None where it is the whole cluster."""
        rows = self._nodes.get((depth, domain))
        if rows is None:
            starts = self.tree.starts[depth]
            end = starts[domain + 1] if domain + 1 < len(starts) else len(self.tree.order)
            rows = self._nodes[depth, domain] = np.sort(self.tree.order[starts[domain] : end])
        return None if len(rows) == len(self._position) else rows

    def _news(self, read: int) -> Rows:
        """Positions that were touched after that many entries of the trial's list."""
        touched = self.trial.touched
        if self._latest[:2] != (read, len(touched)):
            found = self._position[list(set(touched[read:]))]
            self._latest = (read, len(touched), found[found >= 0])
        return self._latest[2]


_NONE: Rows = np.zeros(0, dtype=np.int64)


def figures_of(trial: Trial, ask: Ask, rows: Rows) -> Column:
    """[figure, row]: how many of the pods the nodes could take, and what is free there (`Ground.figures`)."""
    free = trial.idle[:, rows] + trial.releasing[:, rows]
    return np.concatenate((_room(trial, ask, rows, free)[None], free[ask.dims]))


def _room(trial: Trial, ask: Ask, rows: Rows, free: Column) -> Column:
    if ask.share is None:
        return pods_per_node(free[ask.asked], ask.need)
    free = free.copy()
    devices = np.floor(free[GPU])
    for at, row in enumerate(rows.tolist()):
        if row in trial.shares:
            sharable, portions = _shared_room(trial, ask.share, row)
            devices[at] += sharable
            free[GPU, at] += portions
    return np.where(devices >= ask.share.devices, pods_per_node(free[ask.asked], ask.need), 0.0)


def _shared_room(trial: Trial, c: PodClass, node: int) -> tuple[int, float]:
    """Shared devices of a node that still hold a pod of the class, and the free portions of all its shared devices."""
    capacity = float(trial.snapshot.nodes.gpu_memory[node])
    memory = trial.share_memory(c, node)
    shares = trial.shares[node]
    left = sum(capacity - share.allocated + share.releasing for _, share in with_room(shares, 0.0, capacity))
    return len(with_room(shares, memory, capacity)), left / capacity


@dataclass
class Grounds:
    """The trees of a cycle, whole ones and parts of them, and what its gangs ask for."""

    trial: Trial
    _whole: dict[str, Ground] = field(default_factory=dict)
    _parts: dict[tuple[str, bytes], Ground] = field(default_factory=dict)
    _asks: dict[tuple[int, ...], Ask] = field(default_factory=dict)

    @classmethod
    def of(cls, cycle: Cycle) -> Grounds:
        known: Grounds | None = cycle.memo.get("topology")
        if known is None:
            known = cycle.memo["topology"] = cls(cycle.trial)
        return known

    def ground(self, topology: str, nodes: Rows | None) -> Ground:
        """A known topology over the given node rows (None: all)."""
        whole = self._whole.get(topology)
        if whole is None:
            whole = self._whole[topology] = Ground(self.trial, self._tree(topology))
        if nodes is None:
            return whole
        key = (topology, nodes.tobytes())
        part = self._parts.get(key)
        if part is None:
            if len(self._parts) >= PARTS_KEPT:
                self._parts.clear()
            part = self._parts[key] = Ground(self.trial, within(whole.tree, whole.positions(nodes)))
        return part

    def _tree(self, topology: str) -> DomainTree:
        labels = self.trial.snapshot.nodes.labels
        return domain_tree([[node.get(key) for node in labels] for key in self.trial.snapshot.topologies[topology]])

    def ask(self, pods: Sequence[int]) -> Ask:
        """What the pods ask for; remembered, gangs of a kind are many."""
        key = tuple(self.trial.klass[pod] for pod in pods)
        known = self._asks.get(key)
        if known is None:
            known = self._asks[key] = ask_for(self.trial, pods)
        return known
