"""Host ports: two pods on one node cannot listen on the same port of the same address (spec/scheduling.md §6.2).

A pod on its way out still holds its ports: a newcomer may have the node, but waits until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.points import Rejection
from pykai.engine.whereabouts import Tally, whereabouts
from pykai.model.pods import PodClass
from pykai.model.resources import Mask
from pykai.model.snapshot import Snapshot
from pykai.objects.pod_template import PodTemplate, Port

TAKEN = "node(s) didn't have free ports for the requested pod ports"
_ANY = ("", "0.0.0.0")


@dataclass(frozen=True)
class HostPorts:
    """Closes nodes on which a port is taken."""

    def concerns(self, cycle: Cycle, pod_class: PodClass) -> bool:
        return pod_class.row in cycle.snapshot.derived(ports_by_class)

    def closed(self, cycle: Cycle, pod: int) -> Iterable[Rejection]:
        return [(TAKEN, _rivals(cycle, cycle.trial.klass[pod]).company)]

    def blockers(self, cycle: Cycle, pod: int) -> Sequence[Tally]:
        return (_rivals(cycle, cycle.trial.klass[pod]),)

    def must_wait(self, cycle: Cycle, pod: int, node: int) -> bool:
        rivals = _rivals(cycle, cycle.trial.klass[pod])
        return bool(rivals.leaving[rivals.domains[node]])

    def late(self, cycle: Cycle, pod: int) -> Mask | None:
        """Nodes where a port is about to be free."""
        rivals = _rivals(cycle, cycle.trial.klass[pod])
        return rivals.farewell if rivals.leaving.any() else None


def ports_by_class(snapshot: Snapshot) -> dict[int, tuple[Port, ...]]:
    """Class row -> host ports, of classes that ask for any."""
    return {c.row: ports for c in snapshot.pods.classes if (ports := host_ports(c.template))}


def host_ports(template: PodTemplate) -> tuple[Port, ...]:
    """Ports of containers and native sidecars; ordinary init containers are gone when the pod runs."""
    sidecars = [c for c in template.init_containers if c.restart_policy == "Always"]
    found = [port for container in (*template.containers, *sidecars) for port in container.ports or ()]
    return tuple(port for port in found if port.host_port > 0)


def collide(ours: Sequence[Port], theirs: Sequence[Port]) -> bool:
    """Whether some port is wanted by both: same protocol and number, and the same or any address."""
    return any(
        a.host_port == b.host_port
        and (a.protocol or "TCP") == (b.protocol or "TCP")
        and (a.host_ip == b.host_ip or a.host_ip in _ANY or b.host_ip in _ANY)
        for a, b in product(ours, theirs)
    )


def _rivals(cycle: Cycle, row: int) -> Tally:
    """The pods whose ports collide with those of a class, by node."""
    tallies: dict[int, Tally] = cycle.memo.setdefault("host_ports", {})
    if row not in tallies:
        by_class = cycle.snapshot.derived(ports_by_class)
        rivals = [other for other, ports in by_class.items() if collide(by_class[row], ports)]
        pods = np.isin(cycle.snapshot.pods.klass, rivals)
        nodes = len(cycle.snapshot.nodes)
        tallies[row] = Tally(whereabouts(cycle), pods, np.arange(1, nodes + 1), nodes + 1)
    return tallies[row]
