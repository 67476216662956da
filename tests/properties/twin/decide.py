"""§1 the cycle: action after action, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pykai.model.snapshot import Snapshot
from pykai.model.status import Status
from tests.properties.twin.allocate import allocate
from tests.properties.twin.evict import Evictions
from tests.properties.twin.rules import Rule
from tests.properties.twin.world import World

Lodging = tuple[str, ...]
"""A node, and the devices shared there; those that nobody shared before are all called "new"."""


@dataclass(frozen=True)
class Decisions:
    """What a cycle decided, by pod name: where those are bound and promised a place, and the nodes that evicted ones
    go to next ("": nowhere)."""

    binds: dict[str, Lodging]
    promises: dict[str, Lodging]
    evictions: dict[str, str]


def lodging(node: str, groups: Iterable[str]) -> Lodging:
    return node, *sorted("new" if group.startswith("new") else group for group in groups)


def decide(snapshot: Snapshot, actions: Sequence[str], rules: Sequence[Rule] = ()) -> Decisions:
    """The twin of `pykai.engine.decide.decide`; `rules`: those that matter beside the ones all clusters have."""
    return _decisions(after_cycle(snapshot, actions, rules))


def after_cycle(snapshot: Snapshot, actions: Sequence[str], rules: Sequence[Rule] = ()) -> World:
    world = World(snapshot)
    world.rules = rules
    for action in actions:
        if action == "allocate":
            allocate(world)
        else:
            Evictions(world, action).run()
    return world


def _decisions(world: World) -> Decisions:
    names = world.snapshot.pods.names

    def lodged(status: Status) -> dict[str, Lodging]:
        pods = [pod for pod in range(len(world.pods)) if world.status(pod) is status]
        return {names[pod]: lodging(_node(world, pod), _devices(world, pod)) for pod in pods}

    promised = {pod for pod in world.evicted if world.status(pod) is Status.PIPELINED}
    return Decisions(
        binds=lodged(Status.ALLOCATED),
        promises=lodged(Status.PIPELINED),
        evictions={names[pod]: _node(world, pod) if pod in promised else "" for pod in world.evicted},
    )


def _node(world: World, pod: int) -> str:
    return world.snapshot.nodes.names[world.pods[pod].node]


def _devices(world: World, pod: int) -> tuple[str, ...]:
    return world.pods[pod].groups if world.of_class(pod).shared else ()
