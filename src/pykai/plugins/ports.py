"""Host ports: two pods on one node cannot listen on the same port of the same address.

A releasing pod still holds its ports: another pod can be placed on the node, but is pipelined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pykai.engine.cycle import Cycle
from pykai.engine.plugin_api import NodeResourceState, Rejection
from pykai.engine.pod_locations import PodCounts
from pykai.model.pods import PodClass
from pykai.model.resources import Mask, Rows
from pykai.objects.pod_template import PodTemplate, Port

TAKEN = "node(s) didn't have free ports for the requested pod ports"
_ANY = ("", "0.0.0.0")


@dataclass(frozen=True)
class HostPorts:
    """A node is infeasible while a port of the pod is taken there."""

    def open(self, cycle: Cycle) -> PortUse:
        return PortUse(cycle)


class PortUse(NodeResourceState):
    """The pods whose ports collide with those of a class, by node."""

    def __init__(self, cycle: Cycle) -> None:
        self._trial, self._locations = cycle.trial, cycle.pod_locations
        self._known: dict[int, PodCounts] = {}

    def concerns(self, pod_class: PodClass) -> bool:
        return pod_class.row in self._trial.snapshot.pods.derived(ports_by_class)

    def infeasible(self, pod: int) -> Iterable[Rejection]:
        return [(TAKEN, self._colliding(pod).nodes_present)]

    def blockers(self, pod: int) -> Sequence[PodCounts]:
        return (self._colliding(pod),)

    def must_wait(self, pod: int, nodes: Rows) -> Mask | None:
        colliding = self._colliding(pod)
        return colliding.leaving[colliding.domains[nodes]] > 0 if colliding.leaving.any() else None

    def _colliding(self, pod: int) -> PodCounts:
        row = self._trial.klass[pod]
        if row not in self._known:
            snapshot = self._trial.snapshot
            by_class = snapshot.pods.derived(ports_by_class)
            rivals = {
                other for port in by_class[row] for other in snapshot.pods.derived(_classes_by_port)[_number(port)]
            }
            rows = [other for other in rivals if collide(by_class[row], by_class[other])]
            pods, nodes = snapshot.pods.of_classes(rows), len(snapshot.nodes)
            self._known[row] = PodCounts(self._locations, pods, np.arange(1, nodes + 1), nodes + 1)
        return self._known[row]


def ports_by_class(classes: Sequence[PodClass]) -> dict[int, tuple[Port, ...]]:
    """Class row -> host ports, of classes that ask for any."""
    return {c.row: ports for c in classes if (ports := host_ports(c.template))}


def _classes_by_port(classes: Sequence[PodClass]) -> dict[tuple[str, int], list[int]]:
    """The classes that ask for each protocol and number, whatever the address."""
    found: dict[tuple[str, int], list[int]] = {}
    for row, ports in ports_by_class(classes).items():
        for port in ports:
            found.setdefault(_number(port), []).append(row)
    return found


def _number(port: Port) -> tuple[str, int]:
    return port.protocol or "TCP", port.host_port


def host_ports(template: PodTemplate) -> tuple[Port, ...]:
    """Ports of containers and native sidecars; ordinary init containers are gone when the pod runs."""
    sidecars = [c for c in template.init_containers if c.restart_policy == "Always"]
    found = [port for container in (*template.containers, *sidecars) for port in container.ports or ()]
    return tuple(port for port in found if port.host_port > 0)


def collide(ours: Sequence[Port], theirs: Sequence[Port]) -> bool:
    """Whether some port is wanted by both: same protocol and number, and the same or any address."""
    return any(
        _number(a) == _number(b) and (a.host_ip == b.host_ip or a.host_ip in _ANY or b.host_ip in _ANY)
        for a, b in product(ours, theirs)
    )
