"""§13 NUMA: who sits in which zones, what they leave to others, and who waits for them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from pykai.objects import kinds, names
from pykai.objects.units import amount
from tests.properties.small_world import Cluster, Fields, snapshot_of
from tests.properties.twin.alignment import (
    Board,
    Room,
    Seat,
    asked,
    containers,
    guaranteed,
    holds,
    init_containers,
    is_device,
    take,
)
from tests.properties.twin.rules import Gifts, Rule
from tests.properties.twin.world import ACTIVE_ALLOCATED, Place, World


@dataclass(repr=False)
class Boards:
    """A cluster, and what nodes report of their zones."""

    cluster: Cluster
    reports: dict[str, Fields] = field(default_factory=dict)
    """By node."""
    reconstructed: bool = True
    """Whether it follows from where pods sit what is available, or from the reports."""

    def snapshot(self) -> Snapshot:
        """Every gang has its search: what failed for others says nothing."""
        more = [kinds.decode(msgspec.json.encode(item), kinds.NodeResourceTopology) for item in self.reports.values()]
        found = snapshot_of([*self.cluster.objects(), *more])
        return replace(found, params=replace(found.params, use_signatures=False))

    def __repr__(self) -> str:
        lines = [f"{name}: {report['attributes']} {report['zones']}" for name, report in self.reports.items()]
        return "\n".join([repr(self.cluster), *lines, f"reconstructed: {self.reconstructed}"])

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))


class Zones(Rule):
    """Our rules: who leaves has its zones until it is gone, and who wants them waits; who starts at once takes nothing
    that others were promised; zones are chosen anew where a pod starts or waits after all; an evicted pod whose zones
    nobody was given stays; a request for nothing goes to the first zone."""

    def __init__(self, boards: Boards) -> None:
        self.reconstructed = boards.reconstructed
        self.pods = {pod["metadata"]["name"]: pod for pod in boards.cluster.pods}
        self.nodes = {name: Board(report) for name, report in boards.reports.items()}

    # --------------------------------------------------------------------------------------------------------- reading
    def _sensitive(self, pod: Fields) -> bool:
        """Guaranteed, or it asks for a device that some zone reports."""
        known = {name for board in self.nodes.values() for name in board.aware if is_device(name)}
        return guaranteed(pod) or any(known & set(asked(c)) for c in [*containers(pod), *init_containers(pod)])

    def _record(self, world: World, pod: int) -> list[Seat]:
        """Where a pod sat when the cycle began: nowhere, where the record names a zone that is not there."""
        name, start = world.snapshot.pods.names[pod], world.start[pod]
        board = self.nodes.get(world.snapshot.nodes.names[start.node]) if world.had_place(pod) else None
        notes = self.pods[name]["metadata"].get("annotations", {})
        text = notes.get(names.NUMA_OBSERVED) or notes.get(names.NUMA_PREDICTED)
        zones = json.loads(text) if text else []
        if board is None or any(zone["zone"] not in board.names for zone in zones):
            return []
        return [
            (board.names.index(zone["zone"]), resource, amount(much))
            for zone in zones
            for resource, much in zone["amount"].items()
            if resource in board.aware
        ]

    # ----------------------------------------------------------------------------------------------------------- rooms
    def _room(self, world: World, pod: int, node: int, now: bool) -> Room:
        """What the pod can have of a node, at once (`now`) or when those are gone who leave."""
        board = self.nodes[world.snapshot.nodes.names[node]]
        later, at_once = board.copy(self.reconstructed), board.copy(self.reconstructed)
        for other, here in enumerate(world.pods):
            if other != pod and here.node == node and here.status in (Status.ALLOCATED, Status.PIPELINED):
                take(later, here.given)
                take(at_once, here.given if here.status is Status.ALLOCATED else ())
            if world.start[other].node == node:
                stayed = world.start[other].status in ACTIVE_ALLOCATED
                if self.reconstructed:
                    take(at_once, self._record(world, other))
                    take(later, self._record(world, other) if stays(world, other) else ())
                elif stayed and not stays(world, other):
                    take(later, self._record(world, other), -1)
        both = [(a, b if now else a) for a, b in zip(later, at_once, strict=True)]
        return [{name: max(min(a[name], b[name]), 0.0) for name in a} for a, b in both]

    def _choose(self, world: World, pod: int, node: int, now: bool) -> list[Seat] | None:
        """The zones a pod gets, and what of them."""
        board = self.nodes[world.snapshot.nodes.names[node]]
        return board.seats(self.pods[world.snapshot.pods.names[pod]], self._room(world, pod, node, now))

    def _strict(self, world: World, pod: int, node: int) -> bool:
        """Whether the node insists that the pod is aligned."""
        board = self.nodes.get(world.snapshot.nodes.names[node])
        strict = board is not None and board.policy in ("restricted", "single-numa-node")
        return strict and self._sensitive(self.pods[world.snapshot.pods.names[pod]])

    # ----------------------------------------------------------------------------------------------------------- rules
    def closed(self, world: World, pod: int, node: int) -> bool:
        return self._strict(world, pod, node) and self._choose(world, pod, node, now=False) is None

    def waits(self, world: World, pod: int, node: int) -> bool:
        return self._strict(world, pod, node) and self._choose(world, pod, node, now=True) is None

    def score(self, world: World, pod: int, node: int) -> float:
        if not self.nodes or not self._sensitive(self.pods[world.snapshot.pods.names[pod]]):
            return 0.0
        board = self.nodes.get(world.snapshot.nodes.names[node])
        if board is None:
            return 100 / max(len(board.names) for board in self.nodes.values())
        seats = None if board.policy == "none" else self._choose(world, pod, node, now=False)
        return 100 / (len(board.names) if seats is None else len({zone for zone, _, _ in seats}) or 1)

    def gifts_at(self, world: World, pod: int, place: Place) -> Gifts:
        if not self._strict(world, pod, place.node):
            return ()
        return tuple(self._choose(world, pod, place.node, place.status is Status.ALLOCATED) or ())

    def gifts_after_all(self, world: World, pod: int, given: Gifts) -> Gifts:
        return self.gifts_at(world, pod, Place(world.pods[pod].node, world.status(pod)))

    def same(self, world: World, pod: int, given: Gifts) -> bool:
        now = world.pods[pod]
        seats = now.given if fresh(world, pod) else self._record(world, pod)
        starts = fresh(world, pod) and now.before is Status.ALLOCATED
        return not seats or holds(self._room(world, pod, now.node, starts), seats)


def fresh(world: World, pod: int) -> bool:
    """Whether the pod got its place in this cycle."""
    return not world.had_place(pod) or bool(world.pods[pod].leaves)


def stays(world: World, pod: int) -> bool:
    return world.status(pod) in ACTIVE_ALLOCATED and not fresh(world, pod)
