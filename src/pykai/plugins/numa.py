"""numa: aligns the CPUs, memory and devices of pods in NUMA zones. Opt-in.

Two accounts are kept per zone: what will be available once all releasing pods are gone, by which nodes are filtered,
and what is available now, by which a pod starts at once or waits. The zones of running pods are reported by the node;
the zones that a cycle chooses are a prediction that goes into the bind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import BindDetails, NodeResourceState, Rejection
from pykai.engine.trial import Trial
from pykai.kernels.numa import Choose, align, covering_zones, fewest_zones, one_zone
from pykai.model.pods import PodClass
from pykai.model.resources import CPU, Column, Mask, Rows
from pykai.model.resources import scale as unit_scale
from pykai.model.status import ACTIVE_ALLOCATED, IS_ACTIVE_USED, Status, table
from pykai.objects.units import render_quantity
from pykai.plugins.numa_topology import (
    BEST_EFFORT,
    RESTRICTED,
    SINGLE,
    ZoneDemand,
    Zones,
    is_device,
    record_of,
    zone_demand,
    zones_of,
)

MISALIGNED = "node cannot NUMA-align the pod's resources under its Topology Manager policy"
BEST_SCORE = 100.0
STRICT: Mapping[str, Choose] = {SINGLE: one_zone, RESTRICTED: fewest_zones}
_STAYS = table(ACTIVE_ALLOCATED)
_FRESH = (Status.ALLOCATED, Status.PIPELINED)


@dataclass(frozen=True)
class Numa:
    """`ignored`: resources that do not count; `reconstruct`: compute free amounts from pods, not from node reports."""

    ignored: frozenset[str] = frozenset()
    reconstruct: bool = True

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, str]) -> Numa:
        """The plugin of the configured `ignoreList` (comma separated) and `reconstructAvailable` (true or false)."""
        flag = str(arguments.get("reconstructAvailable", "true")).lower()
        if flag not in ("true", "false"):
            raise ValueError(f"arguments.reconstructAvailable: {flag!r} is neither true nor false")
        ignored = (name.strip() for name in arguments.get("ignoreList", "").split(","))
        return cls(frozenset(name for name in ignored if name), flag == "true")

    def open(self, cycle: Cycle) -> ZoneAccounts | None:
        return open_accounts(cycle, self.ignored, self.reconstruct)

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        accounts = cycle.resources.get(ZoneAccounts)
        return accounts is not None and accounts.concerns(pod_class)

    def pod_score(self, cycle: Cycle, pod: int) -> Column | None:
        accounts = cycle.resources.get(ZoneAccounts)
        return None if accounts is None else accounts.scores(cycle.trial.of_class(pod))


class Held(NamedTuple):
    """What a pod takes: node position, [zone, resource] amounts, and which account it is charged to."""

    at: int
    amounts: Column
    now: bool
    later: bool
    fresh: bool
    """Whether this cycle chose it."""


@dataclass
class View:
    """A class on all nodes with zones: its demand, where it can be aligned, and over how many zones."""

    demand: ZoneDemand
    fits: Mask
    span: Column
    read: int
    """How far the log of touched nodes has been read."""


@dataclass(eq=False)
class ZoneAccounts(NodeResourceState):
    """`now` and `later` are [zone, resource, node] blocks, changed through the journal. A class is judged on all nodes
    at once, and again only on nodes that were touched since."""

    trial: Trial
    zones: Zones
    now: Column
    later: Column
    held: dict[int, Held] = field(default_factory=dict)
    seated: frozenset[int] = frozenset()
    """Rows of the classes some of whose pods sat in zones when the cycle began, whether zones matter to them or not."""
    _views: dict[int, View | None] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------- questions
    def concerns(self, pod_class: PodClass) -> bool:
        """Whether the class must be aligned, or some of its pods hold zones that their eviction releases."""
        return pod_class.row in self.seated or self.view(pod_class) is not None

    def view(self, c: PodClass) -> View | None:
        """How the class sees the nodes at this moment; None where zones do not matter to it."""
        if c.row not in self._views:
            self._views[c.row] = self._new_view(c)
        view = self._views[c.row]
        touched = self.trial.touched
        if view is not None and view.read < len(touched):
            position = self.zones.position
            changed = {position[node] for node in touched[view.read :] if node in position}
            view.read = len(touched)
            if changed:
                self._judge(view, np.fromiter(sorted(changed), dtype=np.int64))
        return view

    def _new_view(self, c: PodClass) -> View | None:
        space, zones = self.trial.snapshot.space, self.zones
        demand = zone_demand(c.template, space, zones.rows, c.qos == "Guaranteed")
        devices = np.array([is_device(row, space) for row in zones.rows])
        if c.qos != "Guaranteed" and not demand.whole[devices].any():
            return None
        nodes = len(zones.nodes)
        view = View(demand, np.ones(nodes, dtype=bool), np.ones(nodes), len(self.trial.touched))
        self._judge(view, np.arange(nodes))
        return view

    def _judge(self, view: View, at: Rows) -> None:
        """Bring the view up to date for some node positions, those of one policy and scope together."""
        policy = np.array(self.zones.policy)[at]
        for name in set(policy.tolist()):
            for pod_scope in (False, True):
                nodes = at[(policy == name) & (self.zones.pod_scope[at] == pod_scope)]
                if len(nodes):
                    self._judge_alike(view, name, nodes)

    def _judge_alike(self, view: View, policy: str, at: Rows) -> None:
        zones = np.array([len(self.zones.names[node]) for node in at.tolist()], dtype=np.float64)
        choose = covering_zones if policy == BEST_EFFORT else STRICT.get(policy)
        if choose is None:
            view.span[at] = zones
            return
        taken, possible = self._align(view.demand, choose, self.later[:, :, at], at)
        span = np.maximum(taken.any(axis=1).sum(axis=0), 1)
        view.fits[at] = possible | (policy == BEST_EFFORT)
        view.span[at] = np.where(possible, span, zones)

    def _align(self, demand: ZoneDemand, choose: Choose, room: Column, at: Rows) -> tuple[Column, Mask]:
        """What the demand takes on nodes of one scope with this room, and where it can be aligned."""
        aware = self.zones.aware[:, at]
        together, alone = demand.together, demand.alone
        if self.zones.pod_scope[at[0]]:
            together, alone = (demand.whole,), ()

        def known_there(request: Column) -> Column:
            return np.where(aware, request[:, None], 0.0)

        together_there, alone_there = map(known_there, together), map(known_there, alone)
        full = self.zones.allocatable[:, :, at]
        return align(choose, room, full, list(together_there), list(alone_there))

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        """Nodes that insist on alignment and cannot align the pod, also when all that leave are gone."""
        view, misaligned = self.view(self.trial.of_class(pod)), np.zeros(len(self.trial.snapshot.nodes), dtype=bool)
        if view is not None:
            misaligned[list(self.zones.nodes)] = ~view.fits
        yield MISALIGNED, misaligned

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        """Nodes where the pod can be aligned only when those that leave are gone."""
        if len(nodes) == 1:
            return np.array([self.choose(pod, int(nodes[0]), now=True) is None])
        leaving = np.array(self.zones.nodes)[(self.now < self.later).any(axis=(0, 1))]
        waits = [node for node in np.intersect1d(nodes, leaving).tolist() if self.choose(pod, node, True) is None]
        return np.isin(nodes, waits) if waits else None

    def choose(self, pod: int, node: int, now: bool) -> Column | None:
        """The [zone, resource] amounts a pod takes on a node; None where it cannot be aligned.

        Nothing is taken, and nothing can fail, where the node does not insist on alignment.
        """
        view, at = self.view(self.trial.of_class(pod)), self.zones.position.get(node)
        nothing = np.zeros(self.now.shape[:2])
        strict = STRICT.get(self.zones.policy[at]) if at is not None else None
        if view is None or at is None or strict is None:
            return nothing
        taken, possible = self._align(view.demand, strict, self._room(pod, at, now)[:, :, None], np.array([at]))
        return taken[:, :, 0] if possible[0] else None

    def _room(self, pod: int, at: int, now: bool) -> Column:
        """[zone, resource] amounts that a pod can have of a node; what it was given in this cycle is its own.

        A pod that starts now must not take what is reserved for pipelined pods.
        """
        held = self.held.get(pod)
        own = held if held is not None and held.fresh and held.at == at else None
        later: Column = self.later[:, :, at] + (own.amounts if own and own.later else 0.0)
        return np.minimum(later, self.now[:, :, at] + (own.amounts if own and own.now else 0.0)) if now else later

    def scores(self, c: PodClass) -> Column | None:
        """The fewer zones, the better; nodes that report none count as having as many as the largest."""
        view = self.view(c)
        if view is None:
            return None
        scores = np.full(len(self.trial.snapshot.nodes), BEST_SCORE / self.now.shape[0])
        scores[list(self.zones.nodes)] = np.where(view.fits, BEST_SCORE / view.span, 0.0)
        return scores

    def unchanged(self, pod: int, node: int) -> bool:
        """Whether no other pod was given the zones in which an evicted pod sits, or was to sit."""
        held = self.held.get(pod)
        if held is None:
            return True
        starts = held.fresh and self.trial.virtual.get(pod) == Status.ALLOCATED
        return bool((held.amounts <= np.maximum(self._room(pod, held.at, starts), 0.0)).all())

    def details(self, pod: int) -> BindDetails | None:
        """The zones of a pod with quantities by resource name, CPU in millicores."""
        held = self.held.get(pod)
        if held is None:
            return None
        names, reported = self.zones.names[held.at], self.zones.reported[held.at]
        found = [
            (name, {reported[i]: _quantity(reported[i], self.zones.rows[i], amount) for i, amount in _positive(row)})
            for name, row in zip(names, held.amounts, strict=False)
            if row.any()
        ]
        return BindDetails(zones=tuple(found))

    # --------------------------------------------------------------------------------------------------- changes
    def reserve(self, pod: int, node: int) -> None:
        status = self.trial.status[pod]
        if status not in _FRESH:
            self._stay(pod)
            return
        self._take(pod, node, now=status == Status.ALLOCATED)
        held = self.held.get(pod)
        # A place of this cycle that was taken back and given again may come with other zones.
        if status == Status.ALLOCATED and held is not None and not held.now:
            self.trial.wait_instead(pod)

    def _take(self, pod: int, node: int, now: bool) -> None:
        """A pod gets its node: at once if it can be, or when those who leave are gone."""
        self.release(pod)
        at, chosen = self.zones.position.get(node), self.choose(pod, node, now)
        if chosen is None and now:
            now, chosen = False, self.choose(pod, node, now=False)
        if at is None or chosen is None or not chosen.any():
            self._drop(pod)
            return
        self._put(pod, Held(at, chosen, now, True, True))

    def release(self, pod: int) -> None:
        """A pod is evicted: later its zones are free; a place that only this cycle gave it is free at once."""
        held = self.held.get(pod)
        if held is not None and held.later:
            self._put(pod, held._replace(now=held.now and not held.fresh, later=False))

    def _stay(self, pod: int) -> None:
        """A pod is not evicted after all."""
        held = self.held.get(pod)
        if held is not None and not held.later:
            self._put(pod, held._replace(later=True))

    def _drop(self, pod: int) -> None:
        if pod in self.held:
            self.trial.journal.drop(self.held, pod)

    def _put(self, pod: int, new: Held) -> None:
        """Note what a pod takes; what it leaves on another node stays charged to `now` there."""
        old = self.held.get(pod)
        if old is not None and old.fresh == new.fresh:
            self._charge(old, -1.0)
        self._charge(new, 1.0)
        self.trial.journal.put_new(self.held, pod, new)

    def _charge(self, held: Held, sign: float) -> None:
        for account, charged in ((self.now, held.now), (self.later, held.later)):
            if charged:
                self.trial.journal.column(account.reshape(-1, account.shape[2]), held.at)
                account[:, :, held.at] -= sign * held.amounts
        self.trial.touched.append(self.zones.nodes[held.at])


# -------------------------------------------------------------------------------------------------------- initial state
def open_accounts(cycle: Cycle, ignored: frozenset[str], reconstruct: bool) -> ZoneAccounts | None:
    """The accounts at the start of a cycle; None where no node reports zones."""
    zones = zones_of(cycle.snapshot, ignored)
    if zones is None:
        return None
    start = zones.allocatable if reconstruct else zones.available
    accounts = ZoneAccounts(cycle.trial, zones, start.copy(), start.copy())
    for pod, at, amounts in _seats(cycle, zones):
        held = accounts.held[pod] = Held(at, amounts, True, _STAYS[cycle.trial.status[pod]], False)
        if reconstruct:
            accounts.now[:, :, at] -= amounts
            accounts.later[:, :, at] -= amounts * held.later
    accounts.seated = frozenset(cycle.trial.klass[pod] for pod in accounts.held)
    return accounts


def _seats(cycle: Cycle, zones: Zones) -> Iterator[tuple[int, int, Column]]:
    """(pod, node position, amounts by zone and resource) of pods known to sit in zones."""
    pods, requests = cycle.snapshot.pods, cycle.snapshot.objects.bind_requests
    seated = np.array(IS_ACTIVE_USED)[pods.status] & np.isin(pods.node, zones.nodes)
    for pod in np.flatnonzero(seated).tolist():
        request = requests.get((pods.namespaces[pod], pods.names[pod]))
        record = record_of(pods.objects[pod], request.spec.predicted_numa_zones if request else None)
        at = zones.position[int(pods.node[pod])]
        amounts = zones.amounts(at, record) if record else None
        if amounts is not None:
            yield pod, at, amounts


def _positive(row: Column) -> Iterable[tuple[int, float]]:
    return ((i, float(value)) for i, value in enumerate(row) if value > 0)


def _quantity(name: str, row: int, value: float) -> str:
    return f"{round(value)}m" if row == CPU else render_quantity(value / unit_scale(name))
